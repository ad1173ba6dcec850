//! Scatterings that leave together: the rules of the module's first page, one by one.

use super::super::alone::Alone;
use super::*;

#[test]
fn the_promise_is_held_at_the_first_timestamp_until_the_last_packet_is_written() {
    let mut alone = Alone::new(Service::BestEffort, |_| {});
    alone.open(&[(1, 1 << 16), (2, 1 << 16), (3, 1 << 16)]);
    for to in [1, 2, 3] {
        alone.scatter(&[(to, 10)]);
    }
    assert_eq!(alone.burst(), 3);
    let first = alone.sender.unfinished();
    let frames = alone.frames();
    assert_eq!(first, Some(frames[0].timestamp));
    let held: Vec<_> = frames.iter().map(|sent| sent.held_at).collect();
    assert_eq!(held, [first, first, None]);
}

#[test]
fn messages_for_one_destination_share_a_packet_in_the_order_of_their_timestamps() {
    let mut alone = Alone::new(Service::BestEffort, |_| {});
    alone.open(&[(1, 1 << 16), (2, 1 << 16)]);
    alone.scatter(&[(2, 20)]);
    alone.scatter(&[(1, 11), (2, 21), (1, 12)]);
    alone.scatter(&[(1, 13)]);
    assert_eq!(alone.burst(), 5);
    let frames = alone.frames();
    let [two, one] = &frames[..] else { panic!("one packet each: {frames:?}") };
    let t = two.timestamp;
    let at = |ns| t.wrapping_add_ns(ns);
    assert_eq!((two.to, &two.messages[..]), (2, &[(t, 0, 20), (at(1), 1, 21)][..]));
    let in_one = [(at(1), 0, 11), (at(1), 2, 12), (at(2), 0, 13)];
    assert_eq!((one.to, one.timestamp, &one.messages[..]), (1, at(1), &in_one[..]));
    assert!(frames.iter().all(|sent| sent.psn == 1), "the next of each connection");
}

#[test]
fn a_packet_takes_what_fits_and_the_next_one_the_rest() {
    let mut alone = Alone::new(Service::BestEffort, |_| {});
    alone.open(&[(1, 1 << 16)]);
    for _ in 0..5 {
        alone.scatter(&[(1, 600)]);
    }
    alone.burst();
    let frames = alone.frames();
    let counts: Vec<_> = frames.iter().map(|sent| sent.messages.len()).collect();
    let psns: Vec<_> = frames.iter().map(|sent| sent.psn).collect();
    assert_eq!((counts, psns), ([2, 2, 1].to_vec(), [1, 2, 3].to_vec()));
    assert_eq!(frames[1].timestamp, frames[0].timestamp.wrapping_add_ns(2));
}

#[test]
fn what_exceeds_a_frame_is_cut_and_only_its_last_piece_ends_it() {
    let mut alone = Alone::new(Service::BestEffort, |_| {});
    alone.open(&[(1, 1 << 16)]);
    alone.scatter(&[(1, 5)]);
    alone.scatter(&[(1, 3_000)]);
    alone.scatter(&[(1, 6)]);
    alone.burst();
    let frames = alone.frames();
    let opcodes: Vec<_> = frames.iter().map(|sent| sent.opcode).collect();
    let fragment = Opcode::Fragment;
    assert_eq!(opcodes, [Opcode::Data, fragment, fragment, fragment, Opcode::Data]);
    let mut from = 0;
    for sent in &frames[1..4] {
        assert_eq!(sent.offset, Some(from));
        from += sent.messages[0].2 as u32;
        assert_eq!(sent.has(Flags::END_OF_MESSAGE), from == 3_000);
        assert_eq!(sent.timestamp, frames[1].timestamp);
    }
    assert_eq!(from, 3_000);
    assert!(frames[..4].iter().all(|sent| sent.held_at == Some(frames[0].timestamp)));
    assert_eq!(frames[4].held_at, None);
}

#[test]
fn a_quarter_of_the_congestion_window_without_an_answer_demands_one() {
    let mut alone = Alone::new(Service::BestEffort, |config| {
        config.congestion_window_bytes = 16_000;
        config.frame_len_max = 2_000;
    });
    alone.open(&[(1, 1 << 20)]);
    let mut demands = Vec::new();
    for _ in 0..10 {
        alone.scatter(&[(1, 1_492)]);
        alone.burst();
        // Each payload has 1,500 bytes: the third exceeds 4,000, counted from the last demand.
        demands.extend(alone.frames().iter().map(|sent| sent.has(Flags::ACK_NOW)));
    }
    assert_eq!(demands, [false, false, true, false, false, true, false, false, true, false]);
}

#[test]
fn best_effort_keeps_nothing_of_what_has_left_and_the_reliable_service_all() {
    for (service, kept) in [(Service::BestEffort, 0), (Service::Reliable, 164 + 3_064)] {
        let mut alone = Alone::new(service, |_| {});
        alone.open(&[(1, 1 << 16)]);
        alone.scatter(&[(1, 100)]);
        alone.scatter(&[(1, 3_000)]);
        alone.burst();
        let packets = alone.frames().len() as u32;
        assert_eq!(alone.sender.buffered_bytes(), kept, "{service:?}");
        alone.hear(1, Opcode::Ack, |ack| {
            (ack.cumulative, ack.window_bytes) = (Psn::FIRST.plus(1 + packets), 1 << 16);
        });
        assert_eq!(alone.sender.buffered_bytes(), 0, "{service:?}");
    }
}
