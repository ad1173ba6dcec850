//! A peer that breaks the rules harms nobody but itself: no panic, no lost account, no leak.

mod rig;

use onepipe_base::{Timestamp, Verdict};
use onepipe_endpoint::Outcome;
use onepipe_wire::{FragmentHeader, Opcode};
use rig::{ORIGIN_NS, Rig, ack, connect, data, fragment, probe, reset};

#[test]
fn pieces_that_hide_the_charge_of_their_message_do_not_unbalance_the_accounts() {
    // 100 bytes, made of the second half twice: whole by length, without its beginning.
    for offset in [0, 50] {
        let mut rig = Rig::new(|_| {});
        rig.connect(1, 1);
        let header = FragmentHeader { index: 0, message_len: 100, offset };
        let timestamp = Timestamp::from_ns(ORIGIN_NS + rig.ns);
        for psn in 0..2 {
            rig.hear_at(1, 1, &fragment(psn, header, &[1; 50]), timestamp, timestamp);
        }
        rig.wait(100_000);
        rig.hear(1, 1, &probe(2, 2, 0));
        rig.take();
        assert_eq!(rig.end.receive_buffer_bytes(), 0);
        assert_eq!(rig.delivered, 0);
    }
}

#[test]
fn first_pieces_of_many_messages_are_charged_in_full() {
    let mut rig = Rig::new(|config| {
        config.receive_buffer_bytes_max = 8 << 20;
        config.message_len_max = 1 << 20;
    });
    rig.connect(1, 1);
    let timestamp = Timestamp::from_ns(ORIGIN_NS + rig.ns);
    for psn in 0..1_000 {
        let header = FragmentHeader { index: psn as u16, message_len: 500_000, offset: 0 };
        rig.hear_at(1, 1, &fragment(psn, header, &[1; 10]), timestamp, timestamp);
    }
    // A window is 1 MiB here: two such messages, not a thousand.
    assert_eq!(rig.end.pending(), 2);
    assert!(rig.end.receive_buffer_bytes() >= 1_000_000);
}

#[test]
fn a_peer_that_restarts_again_and_again_does_not_exceed_its_window() {
    let mut rig = Rig::new(|config| {
        config.receive_buffer_bytes_max = 1 << 20;
        config.message_len_max = 100_000;
    });
    for life in 1..200 {
        rig.connect(1, life);
        for psn in 0..20 {
            rig.hear(1, life, &data(psn, &[7; 1_000]));
        }
    }
    assert!(rig.end.receive_buffer_bytes() <= 128 << 10, "one of four windows of half the buffer");
    rig.wait(10_000);
    rig.hear(1, 199, &probe(0, 0, 0));
    rig.take();
    assert_eq!(rig.end.receive_buffer_bytes(), 0);
}

#[test]
fn who_claims_to_be_the_process_itself_is_not_believed() {
    let mut rig = Rig::new(|_| {});
    assert_eq!(rig.hear(0, 1, &connect(0, 0, 0)), Verdict::Dropped);
    assert_eq!(rig.hear(0, 1, &data(0, b"me")), Verdict::Dropped);
    assert_eq!(rig.end.stats().frames_misrouted, 2);
}

#[test]
fn counters_out_of_nowhere_are_added_up_without_overflow() {
    let mut rig = Rig::new(|_| {});
    rig.scatter(&[(1, b"first")]);
    rig.hear(1, 1, &ack(Opcode::Grant, 0, &[], |_| {}));
    assert_eq!(rig.take_sent(Opcode::Data, 1).len(), 1);
    for round in 1..10u32 {
        let told = |ack: &mut onepipe_wire::Ack| {
            ack.received = round.wrapping_mul(0x7fff_ffff);
            ack.marked = ack.received;
            ack.window_bytes = u32::MAX;
            ack.consumed_bytes = u64::MAX;
        };
        rig.hear(1, 1, &ack(Opcode::Ack, 0, &[], told));
    }
    rig.scatter(&[(1, b"second")]);
    rig.wait(100_000);
}

#[test]
fn a_reset_that_the_granting_life_sends_is_not_believed() {
    let mut rig = Rig::new(|_| {});
    rig.scatter(&[(1, b"on the way")]);
    rig.hear(1, 5, &ack(Opcode::Grant, 0, &[], |_| {}));
    for life in [5, 4] {
        rig.hear(1, life, &reset(0));
        rig.take();
        assert!(rig.failed.is_empty(), "life {life} does not forget, or is over");
    }
    rig.hear(1, 6, &reset(0));
    rig.take();
    assert_eq!(rig.failed.iter().map(|f| f.outcome).collect::<Vec<_>>(), [Outcome::Unknown]);
}

#[test]
fn room_that_its_owner_never_uses_is_taken_back_when_others_wait() {
    let mut rig = Rig::new(|_| {});
    rig.connect(1, 1);
    rig.connect(2, 1);
    rig.hear(1, 1, &connect(0, 1, 30 << 20));
    assert_eq!(
        rig.last_ack(1).map(|ack| ack.reservation),
        Some(onepipe_wire::Ack::RESERVATION_GRANTED)
    );
    let ask = connect(0, 1, 30 << 20);
    for _ in 0..400 {
        rig.hear(2, 1, &ask);
        rig.wait(1_000_000);
    }
    assert_eq!(
        rig.last_ack(2).map(|ack| ack.reservation),
        Some(onepipe_wire::Ack::RESERVATION_GRANTED)
    );
    // Its former owner is told.
    rig.hear(1, 1, &connect(0, 1, 30 << 20));
    assert_eq!(
        rig.last_ack(1).map(|ack| ack.reservation),
        Some(onepipe_wire::Ack::RESERVATION_PENDING)
    );
}

#[test]
fn packet_numbers_wrap_in_the_middle_of_a_connection() {
    let mut rig = Rig::new(|_| {});
    let first = u32::MAX - 3;
    rig.hear(1, 1, &connect(first, 0, 0));
    for n in 0..8u32 {
        // The first one behind the wrap is lost.
        if n != 4 {
            rig.hear(1, 1, &data(first.wrapping_add(n), &[n as u8]));
        }
    }
    assert_eq!(rig.last_ack(1).map(|ack| ack.cumulative.0), Some(0));
    rig.hear(1, 1, &probe(0, 4, 0));
    rig.hear(1, 1, &data(0, b"too late"));
    rig.hear(1, 1, &probe(4, 4, 0));
    assert_eq!(rig.last_ack(1).map(|ack| ack.cumulative.0), Some(4));
    rig.wait(10_000);
    rig.hear(1, 1, &probe(4, 4, 0));
    rig.take();
    assert_eq!((rig.delivered, rig.end.stats().packets_duplicate), (7, 1));
}

#[test]
fn what_a_former_life_says_is_stale_and_what_a_later_one_says_is_not_known_yet() {
    let mut rig = Rig::new(|_| {});
    rig.connect(1, 3);
    assert_eq!(rig.hear(1, 2, &data(0, b"former")), Verdict::Dropped);
    assert_eq!(rig.hear(1, 2, &connect(9, 0, 0)), Verdict::Dropped);
    assert!(rig.take_sent(Opcode::Reset, 1).is_empty());
    assert_eq!(rig.hear(1, 3, &data(0, b"this one")), Verdict::Consumed);
    assert_eq!(rig.hear(1, 4, &data(7, b"later")), Verdict::Dropped);
    assert_eq!(rig.take_sent(Opcode::Reset, 1), [(7, vec![])]);
    // Who has heard a later life on a link knows that the former is dead.
    assert_eq!(rig.hear(1, 3, &data(1, b"former now")), Verdict::Dropped);
    assert_eq!(rig.end.control_stats().frames_refused, 3);
}
