//! Admission, rule by rule.

use super::super::harness::SenderHarness;
use super::*;
use crate::Outcome;
use alloc::vec::Vec;
use onepipe_base::{Incarnation, Psn};
use onepipe_wire::{Ack, Flags, Opcode};

/// The receiver has consumed `packets` packets and `bytes` bytes.
fn consumed(harness: &mut SenderHarness, to: u32, window: u32, (packets, bytes): (u32, u64)) {
    harness.respond(to, Opcode::Ack, |ack| {
        (ack.cumulative, ack.window_bytes) = (Psn::FIRST.plus(packets), window);
        ack.consumed_bytes = bytes;
    });
}

//= spec/ordering.md#R30
#[test]
fn scattering_waits_for_all_destination_windows() {
    let mut harness = SenderHarness::new(Service::BestEffort, |_| {});
    harness.open(&[(1, 1_000), (2, 200)]);
    harness.scatter(&[(2, 100)]);
    assert_eq!(harness.send_lens(), [(2, 100)]);
    // 164 of the 200 bytes are outstanding there; 74 more are needed.
    harness.scatter(&[(1, 10), (2, 10)]);
    assert_eq!(harness.send_lens(), []);
    consumed(&mut harness, 2, 200, (2, 64 + 164));
    assert_eq!(harness.send_lens(), [(1, 10), (2, 10)]);
}

//= spec/ordering.md#R30
#[test]
fn overtakers_respect_claims_of_the_oldest() {
    let mut harness = SenderHarness::new(Service::BestEffort, |_| {});
    harness.open(&[(1, 300), (2, 200)]);
    harness.scatter(&[(2, 100)]);
    assert_eq!(harness.send_lens(), [(2, 100)]);
    // Waits for 2 and claims 164 bytes at 1.
    harness.scatter(&[(1, 100), (2, 100)]);
    // Beside the claim, 164 more bytes do not fit, but 75 do.
    harness.scatter(&[(1, 101)]);
    harness.scatter(&[(1, 11)]);
    assert_eq!(harness.send_lens(), [(1, 11)]);
    consumed(&mut harness, 2, 200, (2, 64 + 164));
    assert_eq!(harness.send_lens(), [(1, 100), (2, 100)], "the claim was kept");
}

#[test]
fn considers_sixteen_overtakers() {
    for (between, leaves) in [(OVERTAKERS_MAX - 1, true), (OVERTAKERS_MAX, false)] {
        let mut harness = SenderHarness::new(Service::BestEffort, |_| {});
        harness.open(&[(1, 1_000), (2, 100)]);
        harness.scatter(&[(2, 36)]);
        assert_eq!(harness.send_lens(), [(2, 36)], "the window is full");
        harness.scatter(&[(2, 0)]);
        for _ in 0..between {
            harness.scatter(&[(2, 0)]);
        }
        harness.scatter(&[(1, 5)]);
        assert_eq!(!harness.send_lens().is_empty(), leaves, "{between} between");
    }
}

//= spec/ordering.md#R31
#[test]
fn reservations_are_requested_by_ascending_process() {
    let mut harness = SenderHarness::new(Service::BestEffort, |_| {});
    harness.open(&[(1, 200), (2, 200), (3, 200), (4, 200)]);
    harness.scatter(&[(2, 1_000), (1, 900)]);
    harness.scatter(&[(3, 800)]);
    let grant = |harness: &mut SenderHarness, to| {
        harness.respond(to, Opcode::Grant, |ack| {
            (ack.cumulative, ack.window_bytes) = (Psn::FIRST.plus(1), 200);
            (ack.consumed_bytes, ack.reservation_id, ack.reservation) =
                (64, 1, Ack::RESERVATION_GRANTED);
        });
    };
    assert_eq!(harness.send_lens(), []);
    assert_eq!(
        harness.signals(),
        [(1, Opcode::Connect, 964)],
        "one request at a time, for the oldest only"
    );
    grant(&mut harness, 1);
    assert_eq!(harness.send_lens(), []);
    assert_eq!(harness.signals(), [(2, Opcode::Connect, 1_064)]);
    grant(&mut harness, 2);
    harness.scatter(&[(4, 10)]);
    assert_eq!(harness.burst(), 2, "no packet mixes reservation and window");
    let frames = harness.frames();
    assert!(frames.len() == 2 && frames.iter().all(|sent| sent.has(Flags::RESERVED)));
    assert_eq!(harness.burst(), 1);
    let frames = harness.frames();
    assert!(frames.len() == 1 && frames[0].to == 4 && !frames[0].has(Flags::RESERVED));
}

//= spec/ordering.md#R39
#[test]
fn best_effort_sends_what_it_can_and_reports_the_rest() {
    let mut harness = SenderHarness::new(Service::BestEffort, |_| {});
    harness.open(&[(1, 1_000), (2, 1_000)]);
    harness.sender.on_gone(ProcessId(1), Incarnation(1), &mut harness.stats);
    let id = harness.scatter(&[(1, 10), (2, 11)]);
    assert_eq!(harness.send_lens(), [(2, 11)]);
    let failed: Vec<_> = harness.sender.failures.drain(..).collect();
    assert_eq!(failed.len(), 1);
    assert_eq!((failed[0].scattering, failed[0].index, failed[0].to), (id, 0, ProcessId(1)));
    assert_eq!((failed[0].timestamp, failed[0].outcome), (None, Outcome::Lost));
}

//= spec/ordering.md#R39
#[test]
fn reliable_scattering_is_sent_whole_or_not_at_all() {
    let mut harness = SenderHarness::new(Service::Reliable, |_| {});
    harness.open(&[(1, 300), (2, 200), (3, 200)]);
    harness.scatter(&[(2, 100)]);
    assert_eq!(harness.send_lens(), [(2, 100)]);
    let now = Mono::from_ns(1_000);
    harness.sender.on_failed(&harness.config, now, ProcessId(3), Incarnation(1));
    // A Connect was sent, and no new incarnation has responded.
    let gone = harness.sender.peers.index_of(ProcessId(3)).expect("process 3 has a connection");
    harness.sender.peers.get_mut(gone).state = State::Unreachable(now.after_ns(1_000_000));
    // The oldest waits for 2 and claims 164 bytes at 1.
    harness.scatter(&[(1, 100), (2, 100)]);
    let lost = harness.scatter(&[(1, 10), (3, 10)]);
    harness.scatter(&[(1, 101)]);
    assert_eq!(harness.send_lens(), [], "the claim stands when a later scattering fails");
    let failed: Vec<_> = harness.sender.failures.drain(..).collect();
    assert!(failed.len() == 2 && failed.iter().all(|failed| failed.scattering == lost));
}
