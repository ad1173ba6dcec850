//! What is on its way, in every state.

use super::*;
use crate::segments::Place;
use alloc::vec::Vec;
use onepipe_wire::Ack;

fn flight(packets: u64) -> Flight {
    let mut flight = Flight::new();
    for number in 0..packets {
        flight.push_message(message(number));
        flight.push_packet(Mono::from_ns(number), 1, 100, false);
    }
    flight
}

fn message(number: u64) -> SentMessage {
    let timestamp = Timestamp::from_ns(number);
    SentMessage { scattering: ScatteringId(number), timestamp, index: 0, is_failed: false }
}

fn ack(flight: &mut Flight, cumulative: u32, words: &[(u64, u64)]) -> (Vec<u64>, Option<Settled>) {
    let mut failed = Vec::new();
    let fail = |message: SentMessage, _| failed.push(message.scattering.0);
    let nothing = |_| unreachable!("nothing is kept");
    let settled = hear(flight, (cumulative, words), fail, nothing, nothing);
    (failed, settled)
}

fn hear(
    flight: &mut Flight,
    (cumulative, words): (u32, &[(u64, u64)]),
    fail: impl FnMut(SentMessage, Option<Kept>),
    lost: impl FnMut(Kept),
    done: impl FnMut(Kept),
) -> Option<Settled> {
    let ack = Ack {
        cumulative: Psn(cumulative),
        received: 0,
        marked: 0,
        window_bytes: 0,
        consumed_bytes: 0,
        connection: 0,
        reservation_id: 0,
        reservation: 0,
    };
    let mut bytes = [0; 400];
    let length = ack.write(&mut bytes, words.iter().copied()).expect("fits");
    let view = AckView::parse(&bytes[..length]).expect("just written");
    flight.on_ack(&view, fail, lost, done)
}

#[test]
fn received_and_fenced_packets_settle_once() {
    let mut flight = flight(6);
    let (failed, settled) = ack(&mut flight, 1, &[(0b10010, 0b01000)]);
    assert_eq!(failed, [4]);
    let settled = settled.expect("all of them have left");
    assert_eq!((settled.received_charge, settled.fenced_charge), (300, 100));
    assert_eq!(settled.highest_received, Some(Psn(5)));
    assert_eq!((flight.base(), flight.charge()), (Psn(1), 200));
    let (failed, _) = ack(&mut flight, 1, &[(0b10010, 0b01001)]);
    assert_eq!(failed, [1]);
    let (failed, _) = ack(&mut flight, 4, &[]);
    assert!(failed.is_empty() && flight.is_empty() && flight.messages.is_empty());
    assert_eq!(flight.base(), Psn(6));
}

#[test]
fn an_acknowledgement_of_packets_that_never_left_is_refused() {
    let mut flight = flight(2);
    assert_eq!(ack(&mut flight, 3, &[]).1, None);
    assert_eq!(flight.charge(), 200);
}

#[test]
fn numbers_wrap_while_packets_are_on_the_way() {
    let mut flight = Flight::new();
    flight.base = Psn(u32::MAX - 1);
    flight.given_up = flight.base;
    for number in 0..5 {
        flight.push_message(message(number));
        flight.push_packet(Mono::from_ns(number), 1, 100, false);
    }
    assert_eq!(flight.next(), Psn(3));
    assert_eq!(flight.first_sent_after(Mono::from_ns(2)), Psn(1));
    // Received: the last before the wrap and the second behind it; fenced: the first behind it.
    let (failed, settled) = ack(&mut flight, u32::MAX - 1, &[(0b1010, 0b0100)]);
    assert_eq!(failed, [2]);
    assert_eq!(settled.expect("they have left").highest_received, Some(Psn(1)));
    assert_eq!(ack(&mut flight, 4, &[]).1, None, "from the future");
    ack(&mut flight, 3, &[]);
    assert!(flight.is_empty() && flight.base() == Psn(3));
}

#[test]
fn what_was_given_up_is_reported_once_and_still_settled() {
    let mut flight = flight(3);
    let mut reported = 0;
    flight.give_up(|_| reported += 1);
    flight.give_up(|_| reported += 1);
    assert_eq!((reported, flight.is_accounted_for(), flight.charge()), (3, true, 300));
    flight.push_message(message(3));
    flight.push_packet(Mono::from_ns(3), 1, 100, true);
    assert!(!flight.is_accounted_for());
    // The peer is back: one has arrived, one has not, the new one is in room and lost.
    let (failed, settled) = ack(&mut flight, 1, &[(0b010, 0b101)]);
    assert_eq!(failed, [3], "the others were reported before");
    let settled = settled.expect("they have left");
    assert_eq!((settled.fenced_charge, settled.fenced_in_window), (200, 100));
    assert_eq!(settled.newest_sent, None, "no round trip is taken from what was given up");
}

#[test]
fn a_fragmented_message_fails_once_and_is_remembered_while_it_is_cut() {
    let mut flight = flight(0);
    flight.push_message(message(9));
    flight.push_fragment(Mono::from_ns(0), 10, false, (0, 10, false));
    assert_eq!(ack(&mut flight, 1, &[]).0, []);
    flight.push_fragment(Mono::from_ns(0), 10, false, (0, 10, false));
    flight.push_fragment(Mono::from_ns(0), 10, false, (20, 10, true));
    assert_eq!(ack(&mut flight, 1, &[(0, 0b11)]).0, [9]);
    assert!(flight.messages.is_empty());
}

#[test]
fn what_is_lost_in_part_is_not_done_when_the_rest_has_arrived() {
    let kept = |scattering| Kept { scattering, place: Place::NOWHERE, bytes: 10, missing: 1 };
    let mut flight = Flight::keeping();
    flight.push_message(message(0));
    flight.push_kept(kept(0));
    flight.push_packet(Mono::from_ns(0), 1, 10, false);
    flight.push_message(message(1));
    flight.push_kept(kept(1));
    for piece in 0..70 {
        flight.push_fragment(Mono::from_ns(0), 10, false, (piece * 10, 10, piece == 69));
    }
    let (mut broken, mut lost, mut done) = (Vec::new(), Vec::new(), Vec::new());
    let mut hear = |cumulative, words: &[(u64, u64)]| {
        let fail = |_, kept: Option<Kept>| broken.extend(kept.map(|kept| kept.scattering));
        let lose = |kept: Kept| lost.push(kept.scattering);
        let finish = |kept: Kept| done.push(kept.scattering);
        hear(&mut flight, (cumulative, words), fail, lose, finish);
    };
    // The first piece is lost; the second word names the last to arrive.
    hear(1, &[(u64::MAX - 1, 1), (u64::MAX, 0)]);
    assert_eq!((broken, lost, done), (Vec::from([1]), Vec::from([1]), Vec::from([0])));
    assert!(flight.is_empty());
}
