//! Handcrafted frames on a link: I9 and B.

use onepipe_base::{Incarnation, ProcessId, Promises, Psn, Timestamp};
use onepipe_sim_check::{Links, Rule};
use onepipe_wire::{Header, Opcode, seal};

/// Just below a wrap of the wire timestamp, so that the checks cross the wrap.
const ORIGIN: u64 = (7 << 48) - 50;

fn ts(ns: u64) -> Timestamp {
    Timestamp::from_ns(ORIGIN + ns)
}

fn depart(links: &mut Links, opcode: Opcode, message: u64, promise: Timestamp) {
    let mut bytes = [0; 64];
    let header = Header::new(opcode, ProcessId(0), ProcessId(1), Incarnation(0)).stamped(
        ts(message),
        Promises::both(promise),
        Psn::FIRST,
    );
    let length = seal(&mut bytes, header, 0);
    links.departed(0, &bytes[..length], 0);
}

fn strict() -> Links {
    let mut links = Links::new(1, ts(0));
    links.set_strict(true);
    links
}

#[test]
fn accepts_a_correct_link_across_the_wrap() {
    let mut links = strict();
    for step in 0..10 {
        // The last frame of a burst closes it: its promise is above its own message.
        depart(&mut links, Opcode::Data, step * 20, ts(step * 20 + 1));
        depart(&mut links, Opcode::Beacon, 0, ts(step * 20 + 10));
    }
    assert_eq!((links.violations().count(), links.promise(0)), (0, Some(ts(190))));
}

//= spec/ordering.md#R6
#[test]
fn i9_catches_a_promise_that_moves_back() {
    let mut links = strict();
    depart(&mut links, Opcode::Beacon, 0, ts(70));
    depart(&mut links, Opcode::Beacon, 0, ts(69));
    assert!(links.violations().has(Rule::I9));
}

//= spec/ordering.md#R6
#[test]
fn b_catches_a_message_below_an_earlier_promise() {
    let mut links = strict();
    depart(&mut links, Opcode::Beacon, 0, ts(70));
    depart(&mut links, Opcode::Data, 70, ts(70));
    assert_eq!(links.violations().count(), 0);
    depart(&mut links, Opcode::Fragment, 69, ts(70));
    assert!(links.violations().has(Rule::B));

    let mut lenient = strict();
    lenient.set_strict(false);
    depart(&mut lenient, Opcode::Beacon, 0, ts(70));
    depart(&mut lenient, Opcode::Data, 69, ts(70));
    assert_eq!(lenient.violations().count(), 0, "late messages are allowed under faults");
}

//= spec/ordering.md#R14
#[test]
fn ancient_promise_is_none_and_restart_resets() {
    let mut links = strict();
    depart(&mut links, Opcode::Ack, 0, ts(0).saturating_sub_ns(1 << 46));
    assert_eq!(links.promise(0), None);
    depart(&mut links, Opcode::Beacon, 0, ts(70));
    depart(&mut links, Opcode::Ack, 0, ts(0).saturating_sub_ns(1 << 46));
    links.restarted(0);
    depart(&mut links, Opcode::Beacon, 0, ts(60));
    assert_eq!((links.violations().count(), links.promise(0)), (0, Some(ts(60))));
}

/// Sends a reliable message, or a beacon, with a commit promise; the best-effort promise stays low.
fn commit(links: &mut Links, message: Option<u64>, promise: u64) {
    let opcode = message.map_or(Opcode::Beacon, |_| Opcode::ReliableData);
    let promises = Promises { barrier: ts(1), commit: ts(promise) };
    let mut bytes = [0; 64];
    let header = Header::new(opcode, ProcessId(0), ProcessId(1), Incarnation(0)).stamped(
        ts(message.unwrap_or(0)),
        promises,
        Psn::FIRST,
    );
    let length = seal(&mut bytes, header, 0);
    links.departed(0, &bytes[..length], 0);
}

//= spec/failure.md#R1
#[test]
fn commits_are_checked_separately() {
    let mut links = strict();
    depart(&mut links, Opcode::Beacon, 0, ts(1));
    commit(&mut links, Some(70), 70);
    commit(&mut links, None, 80);
    assert_eq!(links.violations().count(), 0, "above the best-effort promise: a retransmission");
    commit(&mut links, None, 79);
    assert!(links.violations().has(Rule::I9), "the commit promise regressed");

    let mut links = strict();
    commit(&mut links, None, 80);
    commit(&mut links, Some(80), 80);
    assert_eq!(links.violations().count(), 0);
    commit(&mut links, Some(79), 80);
    assert!(links.violations().has(Rule::B), "a scattering below the commit promise");
}

#[test]
fn hop_only_frames_promise_nothing() {
    let mut links = strict();
    depart(&mut links, Opcode::Announce, 0, ts(500));
    assert_eq!(links.promise(0), None);
}
