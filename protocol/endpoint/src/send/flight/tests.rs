//! Packets in flight, in every state.

use super::*;
use crate::arena::PayloadRef;
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

fn ack(
    flight: &mut Flight,
    cumulative: u32,
    words: &[(u64, u64)],
) -> (Vec<u64>, Option<AckSummary>) {
    let mut failed = Vec::new();
    let on_fail = |message: SentMessage, _| failed.push(message.scattering.0);
    let nothing = |_| unreachable!("best effort has no retransmission buffer");
    let summary = respond(flight, (cumulative, words), on_fail, nothing, nothing);
    (failed, summary)
}

fn respond(
    flight: &mut Flight,
    (cumulative, words): (u32, &[(u64, u64)]),
    on_fail: impl FnMut(SentMessage, Option<UnackedMessage>),
    on_lost: impl FnMut(UnackedMessage),
    acked: impl FnMut(UnackedMessage),
) -> Option<AckSummary> {
    flight.on_ack(&view(&mut [0; 400], cumulative, words), on_fail, on_lost, acked)
}

/// Writes an acknowledgement into `bytes`.
fn view<'a>(bytes: &'a mut [u8], cumulative: u32, words: &[(u64, u64)]) -> AckView<'a> {
    let ack = Ack {
        cumulative: Psn(cumulative),
        received: 0,
        marked: 0,
        window_bytes: 0,
        consumed_bytes: 0,
        acked_incarnation: 0,
        reservation_id: 0,
        reservation: 0,
        delay: onepipe_wire::AckDelay::default(),
    };
    let length = ack.write(bytes, words.iter().copied()).expect("fits");
    AckView::parse(&bytes[..length]).expect("written above")
}

/// A fragment of 10 bytes.
fn fragment(offset: u32, is_last: bool) -> FragmentRange {
    FragmentRange { offset, len: 10, is_last }
}

#[test]
fn packets_are_resolved_once() {
    let mut flight = flight(6);
    let (failed, summary) = ack(&mut flight, 1, &[(0b10010, 0b01000)]);
    assert_eq!(failed, [4]);
    let summary = summary.expect("all packets were sent");
    assert_eq!((summary.received_charge, summary.rejected_charge), (300, 100));
    assert_eq!(summary.highest_received, Some(Psn(5)));
    assert_eq!((flight.base(), flight.charge()), (Psn(1), 200));
    let (failed, _) = ack(&mut flight, 1, &[(0b10010, 0b01001)]);
    assert_eq!(failed, [1]);
    let (failed, _) = ack(&mut flight, 4, &[]);
    assert!(failed.is_empty() && flight.is_empty() && flight.messages.is_empty());
    assert_eq!(flight.base(), Psn(6));
}

//= spec/ordering.md#R88
#[test]
fn notices_that_the_receiver_waits_for_resolved_packets() {
    let mut flight = flight(80);
    let mut is_behind = |cumulative, words: &[_]| {
        let mut bytes = [0; 400];
        let view = view(&mut bytes, cumulative, words);
        flight.on_ack(&view, |_, _| {}, |_| {}, |_| {}).expect("all packets were sent");
        flight.is_receiver_behind(&view)
    };
    assert!(!is_behind(70, &[(0b10, 0)]), "it waits for packet 70, as the sender does");
    assert!(!is_behind(60, &[]), "an earlier acknowledgement");
    assert!(is_behind(60, &[(0b10, 0)]), "it lacks packet 60");
    assert!(is_behind(60, &[(0, 0b1)]), "it has rejected packet 60");
    assert!(is_behind(1, &[(0b10, 0)]), "all packets of the words are resolved");
    assert!(is_behind(70, &[(0b10, 0b1)]), "the rejection of packet 70 is known from now on");
}

#[test]
fn rejects_acks_of_unsent_packets() {
    let mut flight = flight(2);
    assert_eq!(ack(&mut flight, 3, &[]).1, None);
    assert_eq!(flight.charge(), 200);
}

#[test]
fn psns_wrap_with_packets_in_flight() {
    let mut flight = Flight::new();
    flight.base = Psn(u32::MAX - 1);
    flight.given_up = flight.base;
    for number in 0..5 {
        flight.push_message(message(number));
        flight.push_packet(Mono::from_ns(number), 1, 100, false);
    }
    assert_eq!(flight.next_psn(), Psn(3));
    assert_eq!(flight.first_sent_after(Mono::from_ns(2)), Psn(1));
    // Received: the last before the wrap and the second after it; rejected: the first after it.
    let (failed, summary) = ack(&mut flight, u32::MAX - 1, &[(0b1010, 0b0100)]);
    assert_eq!(failed, [2]);
    assert_eq!(summary.expect("all packets were sent").highest_received, Some(Psn(1)));
    assert_eq!(ack(&mut flight, 4, &[]).1, None, "packets that were never sent");
    ack(&mut flight, 3, &[]);
    assert!(flight.is_empty() && flight.base() == Psn(3));
}

#[test]
fn abandoned_packets_are_reported_once_and_resolved() {
    let mut flight = flight(3);
    let mut reported = 0;
    flight.give_up(|_| reported += 1);
    flight.give_up(|_| reported += 1);
    assert_eq!((reported, flight.is_accounted_for(), flight.charge()), (3, true, 300));
    flight.push_message(message(3));
    flight.push_packet(Mono::from_ns(3), 1, 100, true);
    assert!(!flight.is_accounted_for());
    // The peer responds again: one packet has arrived, one has not; the new one, charged to a
    // reservation, is lost.
    let (failed, summary) = ack(&mut flight, 1, &[(0b010, 0b101)]);
    assert_eq!(failed, [3], "the others were reported by give_up");
    let summary = summary.expect("all packets were sent");
    assert_eq!((summary.rejected_charge, summary.rejected_in_window), (200, 100));
    assert_eq!(summary.newest_sent, None, "packets that were given up yield no RTT sample");
}

#[test]
fn fragmented_message_fails_once() {
    let mut flight = flight(0);
    flight.push_message(message(9));
    flight.push_fragment(Mono::from_ns(0), 10, false, fragment(0, false));
    assert_eq!(ack(&mut flight, 1, &[]).0, []);
    flight.push_fragment(Mono::from_ns(0), 10, false, fragment(0, false));
    flight.push_fragment(Mono::from_ns(0), 10, false, fragment(20, true));
    assert_eq!(ack(&mut flight, 1, &[(0, 0b11)]).0, [9]);
    assert!(flight.messages.is_empty());
}

#[test]
fn partly_rejected_message_is_lost_not_acked() {
    let unacked = |scattering| UnackedMessage {
        scattering,
        payload_ref: PayloadRef::NONE,
        len: 10,
        missing: 1,
    };
    let mut flight = Flight::reliable();
    flight.push_message(message(0));
    flight.push_unacked(unacked(0));
    flight.push_packet(Mono::from_ns(0), 1, 10, false);
    flight.push_message(message(1));
    flight.push_unacked(unacked(1));
    for piece in 0..70 {
        flight.push_fragment(Mono::from_ns(0), 10, false, fragment(piece * 10, piece == 69));
    }
    let (mut to_recall, mut on_lost, mut acked) = (Vec::new(), Vec::new(), Vec::new());
    let mut respond = |cumulative, words: &[(u64, u64)]| {
        let on_fail = |_, unacked: Option<UnackedMessage>| {
            to_recall.extend(unacked.map(|unacked| unacked.scattering))
        };
        let on_lost = |unacked: UnackedMessage| on_lost.push(unacked.scattering);
        let on_acked = |unacked: UnackedMessage| acked.push(unacked.scattering);
        respond(&mut flight, (cumulative, words), on_fail, on_lost, on_acked);
    };
    // The first fragment is rejected; the second word reports the last ones as received.
    respond(1, &[(u64::MAX - 1, 1), (u64::MAX, 0)]);
    assert_eq!((to_recall, on_lost, acked), (Vec::from([1]), Vec::from([1]), Vec::from([0])));
    assert!(flight.is_empty());
}
