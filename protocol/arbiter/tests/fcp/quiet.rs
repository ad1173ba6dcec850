//! Who is not there, or no longer, is left alone, and found again.

use std::cell::Cell;
use std::rc::Rc;

use onepipe_base::ProcessId;

use crate::world::World;

const MS: u64 = 1_000_000;

/// Control packets that the arbiter sends in the next second.
fn sent_in_a_second(world: &mut World) -> u64 {
    let before = world.arbiters[0].comm_stats().sent;
    world.run_for(1_000 * MS);
    world.arbiters[0].comm_stats().sent - before
}

#[test]
fn an_arbiter_without_endpoints_is_quiet_and_hears_them_when_they_come() {
    let mut world = World::new(8, 1, 1);
    let are_there = Rc::new(Cell::new(false));
    let come = are_there.clone();
    world.fate = Box::new(move |_, from, to, _| !come.get() && from.0.min(to.0) >= 4);
    world.run_for(1_000 * MS);
    assert_eq!(world.arbiters[0].comm().known(), 4);
    let sent = sent_in_a_second(&mut world);
    assert!(sent <= 4, "{sent} packets in a second to 4 who never spoke");
    are_there.set(true);
    assert!(world.enqueue(5, 6, 200));
    world.run_for(5 * MS);
    world.assert_all_came();
    world.run_for(10_000 * MS);
    assert_eq!((world.arbiters[0].comm().known(), sent_in_a_second(&mut world)), (8, 0));
    assert_eq!(world.arbiters[0].comm_stats().silent, 0, "they had not said anything yet");
}

#[test]
fn an_endpoint_that_dies_before_it_acknowledges_is_left_alone() {
    let mut world = World::new(8, 1, 1);
    world.run_for(MS);
    let is_dead = Rc::new(Cell::new(false));
    let dead = is_dead.clone();
    world.fate = Box::new(move |_, from, to, _| dead.get() && (from.0 == 3 || to.0 == 3));
    (0..20).for_each(|_| assert!(world.enqueue(3, 5, 200)));
    // All its timeslots are told, so that it is owed nothing.
    while world.arbiters[0].comm().totals(3, 5).1 < 20 {
        world.run_for(1_000);
        assert!(world.now < 2 * MS);
    }
    is_dead.set(true);
    world.run_for(50 * MS);
    assert_eq!((world.arbiters[0].comm().known(), world.arbiters[0].comm_stats().silent), (7, 1));
    let sent = sent_in_a_second(&mut world);
    assert!(sent <= 1, "{sent} packets in a second to one that died");
    // It was not dead, and is a stranger for a round trip.
    is_dead.set(false);
    (0..20).for_each(|_| assert!(world.enqueue(3, 5, 200)));
    world.run_for(MS);
    world.assert_quiet();
    assert_eq!(world.arbiters[0].comm().known(), 8);
}

/// It has all that it asked for, and its acknowledgement is lost: so it is called, in vain. When it
/// speaks it is out of step, but not taken for one of ten.
#[test]
fn who_was_called_in_vain_is_a_stranger_for_one_round_trip() {
    let mut world = World::new(4, 1, 1);
    world.run_for(MS);
    assert!(world.enqueue(3, 2, 200));
    while world.clients[3].totals(ProcessId(2)) != (1, 1) {
        world.run_for(1_000);
        assert!(world.now < 2 * MS);
    }
    world.fate = Box::new(|_, from, to, _| from.0.max(to.0) == 4 && from.0.min(to.0) == 3);
    world.run_for(6_000 * MS);
    assert_eq!(world.arbiters[0].comm_stats().silent, 1);
    world.fate = Box::new(|_, _, _, _| false);
    let before = world.arbiters[0].comm_stats().resets;
    assert!(world.enqueue(3, 2, 200));
    world.run_for(2 * world.delay_ns + 1);
    assert_eq!(world.arbiters[0].comm_stats().resets, before + 1, "called, and reset");
    assert_eq!(world.arbiters[0].comm().owed(3), 0);
    world.run_for(world.delay_ns);
    assert_eq!(world.arbiters[0].comm().owed(3), 1);
    world.run_for(MS);
    world.assert_quiet();
    world.assert_all_came();
}

/// A switch that was replaced knows nobody: who waits to be sent something must be heard.
#[test]
fn an_idle_endpoint_says_once_a_second_that_it_is_there_and_nobody_answers() {
    let mut world = World::new(4, 1, 1);
    world.run_for(100 * MS);
    let said = Rc::new(Cell::new(0));
    let count = said.clone();
    world.fate = Box::new(move |_, from, _, _| {
        count.set(count.get() + u32::from(from.0 == 2));
        false
    });
    for seconds in 1..=5 {
        let sent = sent_in_a_second(&mut world);
        assert_eq!((said.get(), sent), (seconds, 0));
    }
}
