//! One process plays several: each attachment has a file description of its own.

use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use onepipe_base::{Mono, Now, Port, ProcessId, Promises, Timestamp, Transmit, Verdict};
use onepipe_transport_clock::Clock;
use onepipe_transport_driver::Transport;
use onepipe_wire::Flags;

use crate::config::INLINE_CELL_LEN;
use crate::ring::INLINE;
use crate::sync::Ordering;
use crate::{AttachError, Config, Shm};

mod backpressure;
mod endpoints;
mod membership;
mod wait;

/// Returns a segment name that only this test uses.
fn name(test: &str) -> String {
    format!("test-{}-{test}", std::process::id())
}

fn small() -> Config {
    Config { processes_max: 4, arena_slots: 64, ring_entries: 16, ..Config::default() }
}

fn attach(name: &str, process: u32) -> Shm {
    Shm::attach(name, Some(ProcessId(process)), &small()).expect("the id is free")
}

fn at(ns: u64) -> Now {
    Now { mono: Mono::from_ns(ns), sync: Timestamp::from_ns(ns + (1 << 50)) }
}

/// Sends one frame that begins with `byte`, in a burst of its own. Even bytes make short frames for
/// inline cells, odd bytes make long frames for slots.
fn send(shm: &mut Shm, now: Now, to: u32, byte: u8) {
    let bytes = if byte.is_multiple_of(2) { 1 } else { INLINE_CELL_LEN + 1 };
    shm.begin_burst(now, None);
    shm.slot().expect("a slot is free")[0] = byte;
    shm.send(Transmit { port: Port(to as u16), bytes });
    shm.end_burst(None);
}

/// Frames as port and first byte, promises as port and ns.
type Received = (Vec<(u16, u8)>, Vec<(u16, u64)>);

/// Receives once: frames, and the promises reported after them.
fn receive(shm: &mut Shm, now: Now) -> Received {
    let (mut frames, mut promises_read) = (Vec::new(), Vec::new());
    shm.receive(now, |port, frame| {
        frames.push((port.0, frame[0]));
        Verdict::Consumed
    });
    shm.poll_promises(now, |port, promises| {
        promises_read.push((port.0, promises.barrier.as_ns() - (1 << 50)));
    });
    (frames, promises_read)
}

#[test]
fn frames_arrive_in_order_and_slots_are_reclaimed() {
    let name = name("order");
    let (mut a, mut b) = (attach(&name, 0), attach(&name, 2));
    receive(&mut a, at(1));
    let mut expected = 0;
    for round in 0..100 {
        for _ in 0..7 {
            send(&mut a, at(2 + round), 2, expected);
            expected = expected.wrapping_add(1);
        }
        let (frames, _) = receive(&mut b, at(3 + round));
        let first = expected.wrapping_sub(7);
        let sent: Vec<_> = (0..7).map(|ahead| (0, first.wrapping_add(ahead))).collect();
        assert_eq!(frames, sent);
    }
    assert_eq!((a.stats().frames_sent, b.stats().frames_received), (700, 700));
    // Slots are reclaimed when the sender checks the receiver's head.
    send(&mut a, at(500), 2, 0);
    assert!(a.free_slots() >= 60);
}

//= spec/ordering.md#R18
#[test]
fn idle_promises_scan_time_and_active_promises_floor() {
    let name = name("line");
    let (mut a, mut b) = (attach(&name, 0), attach(&name, 1));
    assert_eq!(receive(&mut a, at(100)).1, [(1, 100)]);
    assert_eq!(receive(&mut a, at(200)).1, [(1, 200)], "an idle process delays no other");

    let floor = Promises::both(at(150).sync);
    b.begin_burst(at(210), Some(floor));
    assert_eq!(receive(&mut a, at(300)).1, [(1, 150)]);
    assert_eq!(receive(&mut a, at(400)).1, [], "an unchanged active promise is not reported again");
    let rest = Promises::both(at(250).sync);
    b.end_burst(Some(rest));
    assert_eq!(receive(&mut a, at(500)).1, [(1, 250)]);
    b.begin_burst(at(510), Some(rest));
    b.end_burst(None);
    assert_eq!(receive(&mut a, at(600)).1, [(1, 600)]);
}

#[test]
fn promise_is_reported_after_all_earlier_frames() {
    let name = name("drained");
    let config = Config { arena_slots: 1024, ring_entries: 1024, ..small() };
    let attach = |process| Shm::attach(&name, Some(ProcessId(process)), &config).expect("free");
    let (mut a, mut b) = (attach(0), attach(1));
    receive(&mut b, at(1));
    for _ in 0..300 {
        send(&mut b, at(2), 0, 9);
    }
    let (frames, promises_read) = receive(&mut a, at(100));
    assert_eq!(
        (frames.len(), promises_read),
        (256, vec![]),
        "the batch is full, the ring is not empty"
    );
    send(&mut b, at(150), 0, 8);
    let (frames, promises_read) = receive(&mut a, at(200));
    assert_eq!((frames.len(), promises_read), (45, vec![(1, 100)]), "the promise was read at 100");
}

#[test]
fn forwarded_frame_is_copied() {
    let name = name("forward");
    let (mut a, mut b, mut c) = (attach(&name, 0), attach(&name, 1), attach(&name, 2));
    receive(&mut a, at(1));
    receive(&mut b, at(1));
    send(&mut a, at(2), 1, 5);
    b.receive(at(3), |_, frame| {
        frame[0] += 1;
        Verdict::Forward(Port(2))
    });
    assert_eq!(receive(&mut c, at(4)).0, [(1, 6)]);
}

#[test]
fn corrupt_segment_costs_frames_only() {
    let name = name("nonsense");
    let (mut a, mut b) = (attach(&name, 0), attach(&name, 1));
    receive(&mut a, at(1));
    receive(&mut b, at(1));
    send(&mut a, at(2), 1, 5);
    let ring = a.segment().ring(0, 1);
    // A slot out of range, a length out of range for a slot and for an inline cell, and a receiver
    // that claims to have read what was never sent.
    let lap = 1 << 41;
    ring.entries[1].store(lap | 64 << 17 | 8, Ordering::Release);
    ring.entries[2].store(lap | 3 << 17 | 8193, Ordering::Release);
    let cell = u64::from(INLINE) << 17;
    ring.entries[3].store(lap | cell | (INLINE_CELL_LEN as u64 + 1), Ordering::Release);
    ring.head.store(1 << 60, Ordering::Release);
    assert_eq!(receive(&mut b, at(3)).0, [(0, 5)]);
    assert_eq!(b.stats().entries_refused, 3);
    for _ in 0..8 {
        send(&mut a, at(4), 1, 6);
    }
    for word in 0..512 {
        a.segment().mapping().word(word * 8 + 4096).store(u64::MAX, Ordering::Release);
    }
    send(&mut a, at(5), 1, 7);
    receive(&mut b, at(6));
    receive(&mut a, at(7));
}

#[test]
fn slot_without_memory_gets_some_before_it_is_read() {
    let name = name("hole");
    let (mut a, mut b) = (attach(&name, 0), attach(&name, 1));
    receive(&mut a, at(1));
    receive(&mut b, at(1));
    let blocks = || std::fs::metadata(a.path()).expect("the segment exists").blocks();
    let before = blocks();
    a.segment().ring(0, 1).entries[0].store(1 << 41 | 40 << 17 | 8, Ordering::Release);
    assert_eq!(receive(&mut b, at(2)).0, [(0, 0)], "the second step of the arena");
    assert!(blocks() > before && b.stats().entries_refused == 0);
}

#[test]
fn restarted_process_gets_slots_of_its_grown_arena_back() {
    let name = name("regrow");
    let config = Config { ring_entries: 128, arena_slots: 256, ..small() };
    let attach = |process| Shm::attach(&name, Some(ProcessId(process)), &config).expect("free");
    let (mut a, mut b) = (attach(0), attach(1));
    receive(&mut a, at(1));
    for number in 0..40 {
        send(&mut a, at(2), 1, number * 2 + 1);
    }
    a.kill();
    let mut a = attach(0);
    receive(&mut a, at(3));
    for number in 0..40 {
        send(&mut a, at(4), 1, number * 2 + 101);
    }
    let sent: Vec<_> = (0..40).map(|n| n * 2 + 1).chain((0..40).map(|n| n * 2 + 101)).collect();
    let received: Vec<_> = receive(&mut b, at(5)).0.into_iter().map(|(_, byte)| byte).collect();
    assert_eq!(received, sent, "no slot in flight was used again");
    assert!(a.free_slots() >= 256 - 80);
}

#[test]
fn segment_shares_one_clock() {
    let name = name("clock");
    let (a, b) = (attach(&name, 0), attach(&name, 1));
    assert_eq!(a.clock().calibration(), b.clock().calibration());
    let (first, second) = (a.clock().read(), b.clock().read());
    assert!(second.sync >= first.sync);
}
