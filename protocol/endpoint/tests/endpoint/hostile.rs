//! A misbehaving peer harms only itself: no panic, no wrong accounting, no leak.

use crate::harness;

use harness::{Harness, ORIGIN_NS, TestFrame, ack, connect, data, fragment, probe, reset};
use onepipe_base::{Port, Promises, Timestamp, Verdict};
use onepipe_endpoint::{Links, Outcome};
use onepipe_wire::{FragmentHeader, Opcode, RECALL_LEN, Recall};

#[test]
fn duplicate_fragments_do_not_corrupt_buffer_accounting() {
    // 100 bytes made of the same half twice: complete by length, but with a part missing.
    for offset in [0, 50] {
        let mut harness = Harness::new(|_| {});
        harness.connect(1, 1);
        let header = FragmentHeader { index: 0, message_len: 100, offset };
        let timestamp = Timestamp::from_ns(ORIGIN_NS + harness.ns);
        for psn in 0..2 {
            harness.receive_at(1, 1, &fragment(psn, header, &[1; 50]), timestamp, timestamp);
        }
        harness.wait(100_000);
        harness.receive(1, 1, &probe(2, 2, 0));
        harness.take_events();
        assert_eq!(harness.end.receive_buffer_bytes(), 0);
        assert_eq!(harness.delivered, 0);
    }
}

#[test]
fn incomplete_messages_are_charged_in_full() {
    let mut harness = Harness::new(|config| {
        config.receive_buffer_bytes_max = 8 << 20;
        config.message_len_max = 1 << 20;
    });
    harness.connect(1, 1);
    let timestamp = Timestamp::from_ns(ORIGIN_NS + harness.ns);
    for psn in 0..1_000 {
        let header = FragmentHeader { index: psn as u16, message_len: 500_000, offset: 0 };
        harness.receive_at(1, 1, &fragment(psn, header, &[1; 10]), timestamp, timestamp);
    }
    // A window of 1 MiB holds two such messages.
    assert_eq!(harness.end.pending(), 2);
    assert!(harness.end.receive_buffer_bytes() >= 1_000_000);
}

#[test]
fn recalls_beyond_the_limit_are_counted() {
    const LIMIT: u64 = 65_536;
    let mut harness = Harness::new(|config| config.link_timeout_ns = 0);
    let open = TestFrame { opcode: Opcode::ReliableConnect, ..connect(0, 0, 0) };
    harness.receive(1, 1, &open);
    let barrier = Timestamp::from_ns(ORIGIN_NS + harness.ns);
    for first in (0..LIMIT + 100).step_by(100) {
        let numbers = first..(first + 100).min(LIMIT + 100);
        let all = numbers.map(|number| Timestamp::from_ns(barrier.as_ns() + 1_000 + number));
        let mut body = vec![0; 100 * RECALL_LEN];
        let len = Recall::write(&mut body, all);
        body.truncate(len);
        let recall = TestFrame { opcode: Opcode::Recall, psn: 0, flags: 0, body };
        harness.receive_at(1, 1, &recall, barrier, barrier);
        harness.drain();
    }
    assert_eq!(harness.end.stats().recalls_refused, 100);
}

#[test]
fn restarting_peer_cannot_exceed_its_window() {
    let mut harness = Harness::new(|config| {
        config.receive_buffer_bytes_max = 1 << 20;
        config.message_len_max = 100_000;
    });
    for incarnation in 1..200 {
        harness.connect(1, incarnation);
        for psn in 0..20 {
            harness.receive(1, incarnation, &data(psn, &[7; 1_000]));
        }
    }
    assert!(harness.end.receive_buffer_bytes() <= 128 << 10, "a quarter of half the buffer");
    harness.wait(10_000);
    harness.receive(1, 199, &probe(0, 0, 0));
    harness.take_events();
    assert_eq!(harness.end.receive_buffer_bytes(), 0);
}

#[test]
fn drops_frames_claiming_our_own_process_id() {
    let mut harness = Harness::new(|_| {});
    assert_eq!(harness.receive(0, 1, &connect(0, 0, 0)), Verdict::Dropped);
    assert_eq!(harness.receive(0, 1, &data(0, b"me")), Verdict::Dropped);
    assert_eq!(harness.end.stats().frames_misrouted, 2);
}

#[test]
fn arbitrary_ack_counters_do_not_overflow() {
    let mut harness = Harness::new(|_| {});
    harness.scatter(&[(1, b"first")]);
    harness.receive(1, 1, &ack(Opcode::Grant, 0, &[], |_| {}));
    assert_eq!(harness.take_sent(Opcode::Data, 1).len(), 1);
    for round in 1..10u32 {
        let reported = |ack: &mut onepipe_wire::Ack| {
            ack.received = round.wrapping_mul(0x7fff_ffff);
            ack.marked = ack.received;
            ack.window_bytes = u32::MAX;
            ack.consumed_bytes = u64::MAX;
        };
        harness.receive(1, 1, &ack(Opcode::Ack, 0, &[], reported));
    }
    harness.scatter(&[(1, b"second")]);
    harness.wait(100_000);
}

#[test]
fn ignores_reset_from_the_granting_incarnation() {
    let mut harness = Harness::new(|_| {});
    harness.scatter(&[(1, b"in flight")]);
    harness.receive(1, 5, &ack(Opcode::Grant, 0, &[], |_| {}));
    for incarnation in [5, 4] {
        harness.receive(1, incarnation, &reset(0));
        harness.take_events();
        assert!(
            harness.failed.is_empty(),
            "incarnation {incarnation} cannot have forgotten the connection"
        );
    }
    harness.receive(1, 6, &reset(0));
    harness.take_events();
    assert_eq!(harness.failed.iter().map(|f| f.outcome).collect::<Vec<_>>(), [Outcome::Unknown]);
}

#[test]
fn unused_reservation_is_reclaimed_for_waiting_peers() {
    let mut harness = Harness::new(|_| {});
    harness.connect(1, 1);
    harness.connect(2, 1);
    harness.receive(1, 1, &connect(0, 1, 30 << 20));
    assert_eq!(
        harness.last_ack(1).map(|ack| ack.reservation),
        Some(onepipe_wire::Ack::RESERVATION_GRANTED)
    );
    let ask = connect(0, 1, 30 << 20);
    for _ in 0..400 {
        harness.receive(2, 1, &ask);
        harness.wait(1_000_000);
    }
    assert_eq!(
        harness.last_ack(2).map(|ack| ack.reservation),
        Some(onepipe_wire::Ack::RESERVATION_GRANTED)
    );
    // Its previous owner learns of it.
    harness.receive(1, 1, &connect(0, 1, 30 << 20));
    assert_eq!(
        harness.last_ack(1).map(|ack| ack.reservation),
        Some(onepipe_wire::Ack::RESERVATION_PENDING)
    );
}

#[test]
fn psns_wrap_within_a_connection() {
    let mut harness = Harness::new(|_| {});
    let first = u32::MAX - 3;
    harness.receive(1, 1, &connect(first, 0, 0));
    for n in 0..8u32 {
        // The first packet after the wrap is lost.
        if n != 4 {
            harness.receive(1, 1, &data(first.wrapping_add(n), &[n as u8]));
        }
    }
    assert_eq!(harness.last_ack(1).map(|ack| ack.cumulative.0), Some(0));
    harness.receive(1, 1, &probe(0, 4, 0));
    harness.receive(1, 1, &data(0, b"too late"));
    harness.receive(1, 1, &probe(4, 4, 0));
    assert_eq!(harness.last_ack(1).map(|ack| ack.cumulative.0), Some(4));
    harness.wait(10_000);
    harness.receive(1, 1, &probe(4, 4, 0));
    harness.take_events();
    assert_eq!((harness.delivered, harness.end.stats().packets_duplicate), (7, 1));
}

//= spec/failure.md#R12
//= spec/ordering.md#R36
#[test]
fn frames_of_other_incarnations_are_rejected() {
    let mut harness = Harness::new(|_| {});
    harness.connect(1, 3);
    assert_eq!(harness.receive(1, 2, &data(0, b"previous")), Verdict::Dropped);
    assert_eq!(harness.receive(1, 2, &connect(9, 0, 0)), Verdict::Dropped);
    assert!(harness.take_sent(Opcode::Reset, 1).is_empty());
    assert_eq!(harness.receive(1, 3, &data(0, b"current")), Verdict::Consumed);
    assert_eq!(harness.receive(1, 4, &data(7, b"later")), Verdict::Dropped);
    assert_eq!(harness.take_sent(Opcode::Reset, 1), [(7, vec![])]);
    // A later incarnation on the link shows that the previous one is dead.
    assert_eq!(harness.receive(1, 3, &data(1, b"previous now")), Verdict::Dropped);
    assert_eq!(harness.end.control_stats().frames_refused, 3);
}

/// A barrier of the far future once raised every later timestamp of the process to it.
//= spec/ordering.md#R81
#[test]
fn promises_far_ahead_are_dropped_and_counted() {
    const HOUR_NS: u64 = 3_600_000_000_000;
    for links in [Links::Uplink, Links::Mesh] {
        let mut harness = Harness::new(|config| config.links = links);
        harness.connect(1, 1);
        let honest = Timestamp::from_ns(ORIGIN_NS + harness.ns);
        for hours in [3, 18] {
            let ahead = honest.wrapping_add_ns(hours * HOUR_NS);
            let verdict = harness.receive_at(1, 1, &data(0, b"from the future"), ahead, ahead);
            assert_eq!(verdict, Verdict::Dropped);
            for (barrier, commit) in [(ahead, ahead), (ahead, honest), (honest, ahead)] {
                let now = harness.now();
                harness.end.handle_promises(now, Port(1), Promises { barrier, commit });
            }
        }
        assert_eq!((harness.end.stats().promises_ahead, harness.end.pending()), (8, 0));
        let promise = harness.end.promises().expect("it has started").barrier;
        assert!(promise.since_ns(honest) < 1_000_000, "no timestamp comes from the future");
        let verdict = harness.receive_at(1, 1, &data(0, b"in time"), honest, honest);
        assert_eq!(verdict, Verdict::Consumed);
        let hour = honest.wrapping_add_ns(HOUR_NS);
        let verdict = harness.receive_at(1, 1, &data(1, b"a clock is off"), hour, hour);
        assert_eq!(verdict, Verdict::Consumed, "a correct clock may be an hour off");
    }
}
