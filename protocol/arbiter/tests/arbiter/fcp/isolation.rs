//! A link that loses packets is found by the receivers' reports, avoided, and used again.

use std::cell::Cell;
use std::rc::Rc;

use onepipe_base::{Machine, ProcessId};
use onepipe_wire::{Frame, Opcode, Slot};

use super::net::{Draws, SLOT_NS, TestNet};

const MS: u64 = 1_000_000;

/// Whether a slot frame crosses the link of `rack` (of three) to `path`.
fn passes(rack: u32, path: u8, (from, to): (ProcessId, ProcessId), frame: &Frame<'_>) -> bool {
    let is_of = |process: ProcessId| process.0 / 3 == rack;
    frame.opcode == Opcode::Slot
        && is_of(from) != is_of(to)
        && Slot::parse(frame.payload).expect("well-formed").0.path == path
}

/// Sends from all endpoints to the other rack. Returns how many packets arrived, and were sent.
fn load(net: &mut TestNet, draws: &mut Draws, ns: u64) -> (usize, usize) {
    let count = |net: &TestNet| net.arrived.values().map(Vec::len).sum::<usize>();
    let (end, before, mut sent) = (net.now + ns, count(net), 0);
    while net.now < end {
        for src in 0..6 {
            let dst = (src / 3 * 3 + 3) % 6 + draws.below(3) as u32;
            sent += usize::from(draws.one_in(3) && net.enqueue(src, dst, 200));
        }
        net.run_for(SLOT_NS);
    }
    net.run_for(MS);
    (count(net) - before, sent)
}

//= spec/arbiter.md#R17
//= spec/arbiter.md#R32
//= spec/arbiter.md#R33
#[test]
fn dead_link_is_avoided_within_ms_and_used_after_repair() {
    let (mut net, mut draws) = (TestNet::new(6, 1, 3), Draws(3));
    let is_broken = Rc::new(Cell::new(false));
    let broken = is_broken.clone();
    net.drop_filter =
        Box::new(move |_, from, to, frame| broken.get() && passes(0, 1, (from, to), frame));
    let (arrived, sent) = load(&mut net, &mut draws, 3 * MS);
    assert_eq!(arrived, sent);
    is_broken.set(true);
    let (arrived, sent) = load(&mut net, &mut draws, 2 * MS);
    assert!(arrived < sent, "some were lost: {arrived} of {sent}");
    let lost = sent - arrived;
    assert!(lost * 2 < sent, "but not for long: {lost} of {sent}");
    let (arrived, sent) = load(&mut net, &mut draws, 3 * MS);
    assert_eq!(arrived, sent, "the link is avoided");
    is_broken.set(false);
    // The link is tried again after ten milliseconds.
    net.run_for(10 * MS);
    let met = Rc::new(Cell::new(0));
    let meets = met.clone();
    net.drop_filter = Box::new(move |_, from, to, frame| {
        meets.set(meets.get() + u32::from(passes(0, 1, (from, to), frame)));
        false
    });
    let (arrived, sent) = load(&mut net, &mut draws, 3 * MS);
    assert_eq!(arrived, sent);
    assert!(met.get() > 100, "the link is used again: {} times", met.get());
}

#[test]
fn permanent_fault_costs_ever_less() {
    let (mut net, mut draws) = (TestNet::new(6, 1, 4), Draws(4));
    net.drop_filter = Box::new(|_, from, to, frame| passes(1, 0, (from, to), frame));
    let (arrived, sent) = load(&mut net, &mut draws, 70 * MS);
    let lost = sent - arrived;
    assert!(lost > 0 && lost * 100 < sent, "{lost} of {sent}");
    assert!(net.arbiters[0].stats().lost > 0);
    assert!(net.arbiters[0].poll_event().is_none(), "the network has taken the events");
}

#[test]
fn link_with_10_percent_loss_is_found() {
    let (mut net, mut draws) = (TestNet::new(6, 1, 5), Draws(5));
    let mut chance = Draws(6);
    net.drop_filter =
        Box::new(move |_, from, to, frame| passes(0, 1, (from, to), frame) && chance.one_in(10));
    load(&mut net, &mut draws, 3 * MS);
    let (arrived, sent) = load(&mut net, &mut draws, 3 * MS);
    assert_eq!(arrived, sent);
}
