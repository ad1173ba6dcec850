//! Which scattering may leave: the rules of the module's first page, one by one.

use super::super::alone::Alone;
use super::*;
use alloc::vec::Vec;
use onepipe_base::{Incarnation, Psn};
use onepipe_wire::{Ack, Flags, Opcode};

/// The receiver has consumed everything up to `packets` packets and `bytes` bytes.
fn consumed(alone: &mut Alone, to: u32, window: u32, (packets, bytes): (u32, u64)) {
    alone.hear(to, Opcode::Ack, |ack| {
        (ack.cumulative, ack.window_bytes) = (Psn::FIRST.plus(packets), window);
        ack.consumed_bytes = bytes;
    });
}

#[test]
fn a_scattering_leaves_when_the_windows_of_all_its_destinations_admit_it() {
    let mut alone = Alone::new(Service::BestEffort, |_| {});
    alone.open(&[(1, 1_000), (2, 200)]);
    alone.scatter(&[(2, 100)]);
    assert_eq!(alone.leaving(), [(2, 100)]);
    // 164 of the 200 bytes are outstanding there, and it would take 74 more.
    alone.scatter(&[(1, 10), (2, 10)]);
    assert_eq!(alone.leaving(), []);
    consumed(&mut alone, 2, 200, (2, 64 + 164));
    assert_eq!(alone.leaving(), [(1, 10), (2, 10)]);
}

#[test]
fn what_the_oldest_has_claimed_is_kept_from_those_that_overtake_it() {
    let mut alone = Alone::new(Service::BestEffort, |_| {});
    alone.open(&[(1, 300), (2, 200)]);
    alone.scatter(&[(2, 100)]);
    assert_eq!(alone.leaving(), [(2, 100)]);
    // Waits for 2, and claims 164 bytes at 1.
    alone.scatter(&[(1, 100), (2, 100)]);
    // 164 more do not fit beside the claim; 75 do.
    alone.scatter(&[(1, 101)]);
    alone.scatter(&[(1, 11)]);
    assert_eq!(alone.leaving(), [(1, 11)]);
    consumed(&mut alone, 2, 200, (2, 64 + 164));
    assert_eq!(alone.leaving(), [(1, 100), (2, 100)], "what it has claimed was there");
}

#[test]
fn sixteen_behind_the_oldest_are_looked_at() {
    for (between, leaves) in [(OVERTAKERS - 1, true), (OVERTAKERS, false)] {
        let mut alone = Alone::new(Service::BestEffort, |_| {});
        alone.open(&[(1, 1_000), (2, 100)]);
        alone.scatter(&[(2, 36)]);
        assert_eq!(alone.leaving(), [(2, 36)], "the window is full");
        alone.scatter(&[(2, 0)]);
        for _ in 0..between {
            alone.scatter(&[(2, 0)]);
        }
        alone.scatter(&[(1, 5)]);
        assert_eq!(!alone.leaving().is_empty(), leaves, "{between} between");
    }
}

#[test]
fn the_oldest_asks_for_room_by_ascending_process_and_leaves_alone_in_it() {
    let mut alone = Alone::new(Service::BestEffort, |_| {});
    alone.open(&[(1, 200), (2, 200), (3, 200), (4, 200)]);
    alone.scatter(&[(2, 1_000), (1, 900)]);
    alone.scatter(&[(3, 800)]);
    let room = |alone: &mut Alone, to| {
        alone.hear(to, Opcode::Grant, |ack| {
            (ack.cumulative, ack.window_bytes) = (Psn::FIRST.plus(1), 200);
            (ack.consumed_bytes, ack.reservation_id, ack.reservation) =
                (64, 1, Ack::RESERVATION_GRANTED);
        });
    };
    assert_eq!(alone.leaving(), []);
    assert_eq!(alone.controls(), [(1, Opcode::Connect, 964)], "not 2 yet, and nothing at 3");
    room(&mut alone, 1);
    assert_eq!(alone.leaving(), []);
    assert_eq!(alone.controls(), [(2, Opcode::Connect, 1_064)]);
    room(&mut alone, 2);
    alone.scatter(&[(4, 10)]);
    assert_eq!(alone.burst(), 2, "no packet mixes room and window");
    let frames = alone.frames();
    assert!(frames.len() == 2 && frames.iter().all(|sent| sent.has(Flags::RESERVED)));
    assert_eq!(alone.burst(), 1);
    let frames = alone.frames();
    assert!(frames.len() == 1 && frames[0].to == 4 && !frames[0].has(Flags::RESERVED));
}

#[test]
fn of_best_effort_what_can_leave_does_and_the_rest_is_reported() {
    let mut alone = Alone::new(Service::BestEffort, |_| {});
    alone.open(&[(1, 1_000), (2, 1_000)]);
    alone.sender.on_gone(ProcessId(1), Incarnation(1), &mut alone.stats);
    let id = alone.scatter(&[(1, 10), (2, 11)]);
    assert_eq!(alone.leaving(), [(2, 11)]);
    let failed: Vec<_> = alone.sender.failures.drain(..).collect();
    assert_eq!(failed.len(), 1);
    assert_eq!((failed[0].scattering, failed[0].index, failed[0].to), (id, 0, ProcessId(1)));
    assert_eq!((failed[0].timestamp, failed[0].outcome), (None, Outcome::Lost));
}

#[test]
fn a_reliable_scattering_leaves_whole_or_not_at_all_and_keeps_others_claims() {
    let mut alone = Alone::new(Service::Reliable, |_| {});
    alone.open(&[(1, 300), (2, 200), (3, 200)]);
    alone.scatter(&[(2, 100)]);
    assert_eq!(alone.leaving(), [(2, 100)]);
    let now = Mono::from_ns(1_000);
    alone.sender.on_failed(&alone.config, now, ProcessId(3), Incarnation(1));
    // It was asked whether it is back, and is not.
    let gone = alone.sender.peers.find(ProcessId(3)).expect("it was written to");
    alone.sender.peers.at(gone).state = State::Unreachable(now.after_ns(1_000_000));
    // The oldest waits for 2, and claims 164 bytes at 1.
    alone.scatter(&[(1, 100), (2, 100)]);
    let lost = alone.scatter(&[(1, 10), (3, 10)]);
    alone.scatter(&[(1, 101)]);
    assert_eq!(alone.leaving(), [], "the claim stands when a later one fails");
    let failed: Vec<_> = alone.sender.failures.drain(..).collect();
    assert!(failed.len() == 2 && failed.iter().all(|failed| failed.scattering == lost));
}
