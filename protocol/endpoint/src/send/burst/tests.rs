//! Bursts, rule by rule.

use super::super::connection::{Fit, State};
use super::super::harness::SenderHarness;
use super::*;
use onepipe_base::Incarnation;
use proptest::prelude::*;

//= spec/ordering.md#R8
#[test]
fn promise_holds_until_the_last_packet_of_a_burst() {
    let mut harness = SenderHarness::new(Service::BestEffort, |_| {});
    harness.open(&[(1, 1 << 16), (2, 1 << 16), (3, 1 << 16)]);
    for to in [1, 2, 3] {
        harness.scatter(&[(to, 10)]);
    }
    assert_eq!(harness.burst(), 3);
    let first = harness.sender.unfinished_burst();
    let frames = harness.frames();
    assert_eq!(first, Some(frames[0].timestamp));
    let held: Vec<_> = frames.iter().map(|sent| sent.unfinished).collect();
    assert_eq!(held, [first, first, None]);
}

//= spec/ordering.md#R34
#[test]
fn coalesces_messages_per_destination_in_order() {
    let mut harness = SenderHarness::new(Service::BestEffort, |_| {});
    harness.open(&[(1, 1 << 16), (2, 1 << 16)]);
    harness.scatter(&[(2, 20)]);
    harness.scatter(&[(1, 11), (2, 21), (1, 12)]);
    harness.scatter(&[(1, 13)]);
    assert_eq!(harness.burst(), 5);
    let frames = harness.frames();
    let [two, one] = &frames[..] else { panic!("expected one packet per destination: {frames:?}") };
    let t = two.timestamp;
    let at = |ns| t.wrapping_add_ns(ns);
    assert_eq!((two.to, &two.messages[..]), (2, &[(t, 0, 20), (at(1), 1, 21)][..]));
    let in_one = [(at(1), 0, 11), (at(1), 2, 12), (at(2), 0, 13)];
    assert_eq!((one.to, one.timestamp, &one.messages[..]), (1, at(1), &in_one[..]));
    assert!(frames.iter().all(|sent| sent.psn == 1), "the next PSN of each connection");
}

#[test]
fn fills_packets_in_order() {
    let mut harness = SenderHarness::new(Service::BestEffort, |_| {});
    harness.open(&[(1, 1 << 16)]);
    for _ in 0..5 {
        harness.scatter(&[(1, 600)]);
    }
    harness.burst();
    let frames = harness.frames();
    let counts: Vec<_> = frames.iter().map(|sent| sent.messages.len()).collect();
    let psns: Vec<_> = frames.iter().map(|sent| sent.psn).collect();
    assert_eq!((counts, psns), ([2, 2, 1].to_vec(), [1, 2, 3].to_vec()));
    assert_eq!(frames[1].timestamp, frames[0].timestamp.wrapping_add_ns(2));
}

#[test]
fn fragments_messages_larger_than_a_frame() {
    let mut harness = SenderHarness::new(Service::BestEffort, |_| {});
    harness.open(&[(1, 1 << 16)]);
    harness.scatter(&[(1, 5)]);
    harness.scatter(&[(1, 3_000)]);
    harness.scatter(&[(1, 6)]);
    harness.burst();
    let frames = harness.frames();
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
    assert!(frames[..4].iter().all(|sent| sent.unfinished == Some(frames[0].timestamp)));
    assert_eq!(frames[4].unfinished, None);
}

#[test]
fn requests_an_ack_every_quarter_congestion_window() {
    let mut harness = SenderHarness::new(Service::BestEffort, |config| {
        config.congestion_window_bytes = 16_000;
        config.frame_len_max = 2_000;
    });
    harness.open(&[(1, 1 << 20)]);
    let mut demands = Vec::new();
    for _ in 0..10 {
        harness.scatter(&[(1, 1_492)]);
        harness.burst();
        // Each payload has 1,500 bytes: the third exceeds 4,000, counted from the last request.
        demands.extend(harness.frames().iter().map(|sent| sent.has(Flags::ACK_NOW)));
    }
    assert_eq!(demands, [false, false, true, false, false, true, false, false, true, false]);
}

#[test]
fn only_the_reliable_service_buffers_sent_messages() {
    for (service, unacked) in [(Service::BestEffort, 0), (Service::Reliable, 164 + 3_064)] {
        let mut harness = SenderHarness::new(service, |_| {});
        harness.open(&[(1, 1 << 16)]);
        harness.scatter(&[(1, 100)]);
        harness.scatter(&[(1, 3_000)]);
        harness.burst();
        let packets = harness.frames().len() as u32;
        assert_eq!(harness.sender.buffered_bytes(), unacked, "{service:?}");
        harness.respond(1, Opcode::Ack, |ack| {
            (ack.cumulative, ack.window_bytes) = (Psn::FIRST.plus(1 + packets), 1 << 16);
        });
        assert_eq!(harness.sender.buffered_bytes(), 0, "{service:?}");
    }
}

#[test]
fn run_of_single_messages_ends_at_the_window() {
    let mut harness = SenderHarness::new(Service::BestEffort, |_| {});
    // Opening the connection has taken 64 bytes of its window.
    harness.open(&[(1, 64 + 300), (2, 1 << 16)]);
    for to in [1, 1, 2, 1, 1] {
        // Charged 100 bytes.
        harness.scatter(&[(to, 36)]);
    }
    assert_eq!(harness.burst(), 4, "the last message exceeds the window of process 1");
    let connection = harness.sender.peers.get(0);
    assert_eq!((connection.sent, connection.in_burst, connection.has_waiting), (364, 300, true));
    let frames = harness.frames();
    let [one, two] = &frames[..] else { panic!("expected one packet per destination: {frames:?}") };
    let at = |ns| one.timestamp.wrapping_add_ns(ns);
    let in_one = [(at(0), 0, 36), (at(1), 0, 36), (at(3), 0, 36)];
    assert_eq!((one.to, &one.messages[..]), (1, &in_one[..]));
    assert_eq!((two.to, &two.messages[..]), (2, &[(at(2), 0, 36)][..]));
}

proptest! {
    #[test]
    fn allowance_admits_what_fits_and_no_more(
        window in 0u64..2000,
        sent in 0u64..2000,
        consumed in 0u64..2000,
        in_burst in 0u64..1000,
        need in 1u64..2000,
    ) {
        let config = Config {
            congestion_window_bytes: 1000,
            ..Config::new(ProcessId(0), Incarnation(1))
        };
        let mut connection = Connection::new(ProcessId(1), &config, Service::BestEffort, 1);
        prop_assert_eq!(connection.allowance(), 0, "it is not open");
        connection.state = State::Open;
        (connection.window, connection.sent, connection.consumed) = (window, sent, consumed);
        (connection.in_burst, connection.need) = (in_burst, need);
        let (fits, is_allowed) = (connection.fit(true) == Fit::Now, need <= connection.allowance());
        prop_assert!(fits || !is_allowed);
        prop_assert!(is_allowed || !fits || in_burst == 0, "the first one may exceed the allowance");
    }
}
