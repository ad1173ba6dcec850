//! Receivers that are slow, and receivers that have stopped.

use super::*;
use crate::config::INLINE_CELLS;

const HOLD_NS: u64 = 50_000_000;

#[test]
fn slow_receiver_is_waited_for_and_stopped_one_is_not() {
    let name = name("stopped");
    let (mut a, mut b, mut c) = (attach(&name, 0), attach(&name, 1), attach(&name, 2));
    receive(&mut a, at(1));
    receive(&mut c, at(1));
    let mut sent = 0;
    while a.can_begin_burst(at(2)) {
        send(&mut a, at(2), 1, sent);
        sent += 1;
    }
    assert_eq!(sent, 13, "three quarters of 16, and the one that showed it");
    assert_eq!(a.stats().frames_overflowed, 0);
    assert!(!a.can_begin_burst(at(1 + HOLD_NS)));

    // It was merely slow.
    let taken = receive(&mut b, at(3 + HOLD_NS)).0;
    assert_eq!(taken.len(), 13);
    assert!(a.can_begin_burst(at(4 + HOLD_NS)));

    // It stops and gets no more than its share; other receivers lose nothing.
    let mut now = 5 + HOLD_NS;
    for byte in 0..100 {
        while !a.can_begin_burst(at(now)) {
            now += HOLD_NS / 10;
        }
        send(&mut a, at(now), 1, byte);
        send(&mut a, at(now), 2, byte);
        assert_eq!(receive(&mut c, at(now)).0, [(0, byte)]);
    }
    assert_eq!(a.stats().frames_overflowed, 100 - 16);
    assert!(now > 4 * HOLD_NS, "four times as long as it was slow before");
    assert!(now < 6 * HOLD_NS, "the receiver was waited for once");
    assert_eq!(receive(&mut b, at(now)).0.len(), 16);
}

/// Polls every `interval_ns` until a burst may begin, and returns when that was.
fn wait(shm: &mut Shm, mut now: u64, interval_ns: u64) -> u64 {
    while !shm.can_begin_burst(at(now)) {
        now += interval_ns;
    }
    now
}

#[test]
fn own_stalls_do_not_count_as_the_receivers() {
    let name = name("stall");
    let (mut a, mut b) = (attach(&name, 0), attach(&name, 1));
    receive(&mut a, at(1));
    assert!(a.can_begin_burst(at(2)));
    assert_eq!(burst(&mut a, at(2), 1), 17);
    // Both were off their cores, and the sender is back first.
    let back = 2 * HOLD_NS;
    assert!(!a.can_begin_burst(at(back)), "the receiver gets half a hold from here on");
    assert!(!a.can_begin_burst(at(back + 1)));
    assert_eq!(receive(&mut b, at(back + 2)).0.len(), 16);
    assert!(a.can_begin_burst(at(back + 3)));
    assert_eq!((receive(&mut b, at(back + 4)).0.len(), a.stats().frames_overflowed), (1, 0));

    assert_eq!(stalled_until(HOLD_NS / 4), 4 * HOLD_NS, "a stopped receiver is given up");
    assert_eq!(stalled_until(HOLD_NS / 10), HOLD_NS, "a sender that is hardly late");
}

/// Returns how long a sender that looks every `interval_ns` waits for a receiver that has stopped.
fn stalled_until(interval_ns: u64) -> u64 {
    let name = name(&format!("late{interval_ns}"));
    let (mut late, _stopped) = (attach(&name, 0), attach(&name, 1));
    receive(&mut late, at(1));
    assert!(late.can_begin_burst(at(2)));
    assert_eq!(burst(&mut late, at(2), 1), 17);
    wait(&mut late, 2, interval_ns) - 2
}

/// Sends up to 40 numbered frames in one burst with the floor 7, as many as there are slots for.
fn burst(shm: &mut Shm, now: Now, to: u32) -> u8 {
    shm.begin_burst(now, Some(Promises::both(at(7).sync)));
    let mut sent = 0;
    while sent < 40
        && let Some(slot) = shm.slot()
    {
        slot[0] = sent;
        shm.send(Transmit { port: Port(to as u16), bytes: INLINE_CELL_LEN + 1 });
        sent += 1;
    }
    shm.end_burst(Some(Promises::both(at(1000).sync)));
    sent
}

#[test]
fn burst_beyond_a_receivers_share_is_paused_without_loss() {
    let name = name("burst");
    let (mut a, mut b, mut c) = (attach(&name, 0), attach(&name, 1), attach(&name, 2));
    receive(&mut a, at(1));
    assert!(a.can_begin_burst(at(2)));
    assert_eq!(burst(&mut a, at(2), 1), 17, "its share of 16 and one parked frame");
    assert!(
        !a.can_begin_burst(at(3)) && a.slot().is_none(),
        "no frame leaves before the parked one"
    );
    assert_eq!(a.stats().frames_overflowed, 0);

    let (frames, promises_read) = receive(&mut b, at(2000));
    let frames_of = |numbers: std::ops::Range<u8>| numbers.map(|n| (0, n)).collect::<Vec<_>>();
    assert_eq!(frames, frames_of(0..16));
    assert_eq!(
        promises_read,
        [(0, 7), (2, 2000)],
        "the parked frame may be stamped with the floor"
    );
    assert_eq!(receive(&mut c, at(2001)).1[0], (0, 7));
    assert!(a.can_begin_burst(at(3)));
    assert_eq!(
        receive(&mut b, at(2002)).0,
        frames_of(16..17),
        "the parked frame was sent once there was capacity"
    );
    a.begin_burst(at(2003), Some(Promises::both(at(1000).sync)));
    a.end_burst(None);
    assert_eq!(receive(&mut b, at(2004)).1, [(0, 2004), (2, 2004)]);
    assert_eq!(a.free_slots(), 64 - 1, "the last slot is reclaimed by the next send");
}

#[test]
fn parked_frame_is_dropped_when_its_receiver_stops_or_leaves() {
    let name = name("parked");
    let (mut a, b) = (attach(&name, 0), attach(&name, 1));
    receive(&mut a, at(1));
    assert!(a.can_begin_burst(at(2)));
    assert_eq!(burst(&mut a, at(2), 1), 17);
    assert!(!a.can_begin_burst(at(2 + HOLD_NS / 10)));
    assert_eq!(wait(&mut a, 2, HOLD_NS / 10), 2 + HOLD_NS, "the wait was bounded");
    assert_eq!((a.stats().frames_overflowed, a.free_slots()), (1, 64 - 16));
    drop(b);

    receive(&mut a, at(3 + HOLD_NS));
    let b = attach(&name, 1);
    receive(&mut a, at(4 + HOLD_NS));
    assert!(a.can_begin_burst(at(5 + HOLD_NS)));
    assert_eq!(burst(&mut a, at(5 + HOLD_NS), 1), 17);
    assert!(!a.can_begin_burst(at(6 + HOLD_NS)));
    b.kill();
    (0..4).for_each(|turn| drop(receive(&mut a, at((7 + turn) * HOLD_NS))));
    assert!(a.can_begin_burst(at(11 * HOLD_NS)));
    assert_eq!((a.stats().frames_unreachable, a.free_slots()), (1, 64));
}

#[test]
fn frames_for_a_lagging_receiver_are_congestion_marked() {
    use onepipe_base::{Incarnation, Psn};
    use onepipe_wire::{Frame, Header, Opcode, seal};

    let name = name("mark");
    let (mut a, mut b) = (attach(&name, 0), attach(&name, 1));
    receive(&mut a, at(1));
    for _ in 0..12 {
        let header = Header::new(Opcode::Data, ProcessId(0), ProcessId(1), Incarnation(1));
        let header = header.stamped(at(2).sync, Promises::both(at(2).sync), Psn::FIRST);
        a.begin_burst(at(2), None);
        let slot = a.slot().expect("a slot is free");
        let bytes = seal(slot, header, 0);
        a.send(Transmit { port: Port(1), bytes });
        a.end_burst(None);
    }
    let mut marks = Vec::new();
    b.receive(at(3), |_, frame| {
        let frame = Frame::parse(frame).expect("a marked frame is intact");
        marks.push(frame.header.has(Flags::CONGESTION));
        Verdict::Consumed
    });
    let expected: Vec<bool> = (0..12).map(|before| before > 8).collect();
    assert_eq!(marks, expected);
    assert_eq!(a.stats().frames_marked, 3);
}

#[test]
fn frames_to_absent_processes_are_counted() {
    let name = name("nobody");
    let mut a = attach(&name, 0);
    receive(&mut a, at(1));
    for to in [0, 1, 3, 4, 65_535] {
        send(&mut a, at(2), to, 1);
    }
    assert_eq!((a.stats().frames_unreachable, a.free_slots()), (5, 64));
}

#[test]
fn short_frames_use_inline_cells_before_slots() {
    let name = name("nook");
    let config = Config { ring_entries: 64, ..small() };
    let attach = |process| Shm::attach(&name, Some(ProcessId(process)), &config).expect("free");
    let (mut a, mut b) = (attach(0), attach(1));
    receive(&mut a, at(1));
    let short = |number: u8| number * 2;
    for number in 0..20 {
        send(&mut a, at(2), 1, short(number));
    }
    assert_eq!(a.free_slots(), 64 - (20 - INLINE_CELLS), "all inline cells are in use");
    let sent: Vec<_> = (0..20).map(|number| (0, short(number))).collect();
    assert_eq!(receive(&mut b, at(3)).0, sent, "no cell was overwritten");
    send(&mut a, at(4), 1, short(20));
    send(&mut a, at(5), 1, short(21));
    assert_eq!(a.free_slots(), 64 - 1, "all slots but one are reclaimed");
    assert_eq!(receive(&mut b, at(6)).0, [(0, short(20)), (0, short(21))]);
}
