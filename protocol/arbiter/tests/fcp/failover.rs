//! An arbiter dies, or is thought dead: no timeslot is granted twice (the world looks at each), and
//! what waits is sent nevertheless.

use onepipe_wire::Opcode;

use crate::world::{Channel, Draws, SLOT_NS, World, first_arbiter};

const MS: u64 = 1_000_000;

/// Lets traffic come in at random for a while.
fn load(world: &mut World, draws: &mut Draws, ns: u64) {
    let nodes = u64::from(world.nodes());
    let end = world.now + ns;
    while world.now < end {
        let (src, dst) = (draws.below(nodes) as u32, draws.below(nodes) as u32);
        if src != dst {
            world.enqueue(src, dst, 200);
        }
        world.run_for(draws.below(SLOT_NS));
    }
}

fn is_primary(world: &World) -> [bool; 2] {
    [0, 1].map(|place| world.arbiters[place].is_primary())
}

#[test]
fn the_secondary_takes_over_a_millisecond_after_the_primary_died() {
    for seed in 0..12 {
        let (mut world, mut draws) = (World::new(6, 2, seed), Draws(seed));
        load(&mut world, &mut draws, 2 * MS);
        assert_eq!(is_primary(&world), [true, false]);
        world.control = Channel { lose: seed % 3 * 8, ..Channel::default() };
        let a_while = draws.below(MS);
        load(&mut world, &mut draws, a_while);
        world.is_down[0] = true;
        let died = world.now;
        while !world.arbiters[1].is_primary() {
            load(&mut world, &mut draws, 10_000);
        }
        let took = world.now - died;
        let is_early = took < 9 * MS / 10 && seed % 3 == 0;
        assert!(took < MS + 100_000 && !is_early, "{took} ns");
        let slots_sent = |world: &World| -> u64 {
            world.clients.iter().map(|client| client.stats().slots_sent).sum()
        };
        let before = slots_sent(&world);
        load(&mut world, &mut draws, MS);
        assert!(slots_sent(&world) > before + 100, "it goes on within another millisecond");
        world.control = Channel::default();
        world.run_for(30 * MS);
        world.assert_quiet();
        world.assert_all_came();
        // Who comes back does not take it away again.
        world.restart_arbiter(0);
        load(&mut world, &mut draws, 3 * MS);
        assert_eq!(is_primary(&world), [false, true]);
        world.run_for(10 * MS);
        world.assert_quiet();
        world.assert_all_came();
    }
}

#[test]
fn watchdogs_lost_one_way_make_two_primaries_for_less_than_a_lead() {
    for seed in 0..12 {
        let (mut world, mut draws) = (World::new(6, 2, seed), Draws(seed));
        world.delay_ns = 5_000 + seed % 4 * 10_000;
        load(&mut world, &mut draws, 2 * MS);
        let (first, cut) = (first_arbiter(6), world.now);
        world.fate = Box::new(move |now, from, _, frame| {
            now > cut && from == first && frame.opcode == Opcode::Watchdog
        });
        let mut both_ns = 0;
        for _ in 0..3_000 {
            load(&mut world, &mut draws, 1_000);
            both_ns += if is_primary(&world) == [true, true] { 1_000 } else { 0 };
        }
        assert_eq!(is_primary(&world), [false, true]);
        assert!(both_ns < 65_000, "{both_ns} ns");
        let (second, start) = world.starts[1];
        assert_eq!((world.starts.len(), second), (2, 1));
        assert!(world.last[0] < start, "{} and {start}", world.last[0]);
        world.run_for(20 * MS);
        world.assert_quiet();
        world.assert_all_came();
    }
}

/// Neither hears anything of the other, but endpoints hear both: they tell who is over.
#[test]
fn arbiters_that_are_parted_from_each_other_are_told_by_endpoints() {
    for seed in 0..12 {
        let (mut world, mut draws) = (World::new(6, 2, seed), Draws(seed));
        world.delay_ns = 1_000 + seed % 4 * 2_000;
        load(&mut world, &mut draws, 2 * MS);
        let first = first_arbiter(6);
        world.fate = Box::new(move |_, from, to, _| from >= first && to >= first);
        let (mut both_ns, mut changes) = (0, 0);
        for _ in 0..4_000 {
            let before = is_primary(&world);
            load(&mut world, &mut draws, 1_000);
            both_ns += if is_primary(&world) == [true, true] { 1_000 } else { 0 };
            changes += u64::from(before != is_primary(&world));
        }
        assert!(changes >= 2 && both_ns < changes * 50_000, "{both_ns} ns, {changes} times");
        // They hear each other again.
        world.fate = Box::new(|_, _, _, _| false);
        load(&mut world, &mut draws, 2 * MS);
        assert_ne!(world.arbiters[0].is_primary(), world.arbiters[1].is_primary());
        world.run_for(20 * MS);
        world.assert_quiet();
        world.assert_all_came();
    }
}

#[test]
fn watchdogs_lost_the_other_way_change_nothing() {
    let (mut world, mut draws) = (World::new(4, 2, 5), Draws(5));
    let second = onepipe_base::ProcessId(first_arbiter(4).0 + 1);
    world.fate = Box::new(move |_, from, _, _| from == second);
    load(&mut world, &mut draws, 5 * MS);
    assert_eq!((is_primary(&world), world.arbiters[0].epoch()), ([true, false], 1));
    world.run_for(10 * MS);
    world.assert_quiet();
    world.assert_all_came();
}

#[test]
fn who_is_not_answered_asks_another_arbiter() {
    let mut world = World::new(4, 2, 5);
    world.run_for(2 * MS);
    // The primary is dead, and nobody can be told by the other one.
    world.is_down[0] = true;
    let (second, until) = (onepipe_base::ProcessId(first_arbiter(4).0 + 1), world.now + 3 * MS);
    world.fate = Box::new(move |now, from, _, _| from == second && now < until);
    assert!(world.enqueue(0, 3, 200));
    world.run_for(30 * MS);
    world.assert_all_came();
    assert_eq!(world.clients[0].arbiter(), second);
}

#[test]
fn an_endpoint_that_does_not_hear_its_arbiter_deposes_nobody() {
    for for_ns in [1_000_000, 1_500_000, 2_000_000, 3_000_000, 4_500_000, 6_000_000] {
        let (mut world, mut draws) = (World::new(4, 2, 5), Draws(5));
        load(&mut world, &mut draws, 2 * MS);
        let (first, deaf) = (first_arbiter(4), onepipe_base::ProcessId(0));
        let (begin, end) = (world.now, world.now + for_ns);
        world.fate = Box::new(move |now, from, to, _| {
            (begin..end).contains(&now) && from == first && to == deaf
        });
        load(&mut world, &mut draws, 10 * MS);
        assert_eq!((is_primary(&world), world.arbiters[0].epoch()), ([true, false], 1));
        world.fate = Box::new(|_, _, _, _| false);
        world.run_for(20 * MS);
        world.assert_quiet();
        world.assert_all_came();
    }
}

#[test]
fn a_grant_that_another_arbiter_gave_out_before_it_died_is_used() {
    let (mut world, mut draws) = (World::new(4, 2, 5), Draws(5));
    load(&mut world, &mut draws, 2 * MS);
    world.is_down[0] = true;
    load(&mut world, &mut draws, 3 * MS);
    let twice: u64 = world.clients.iter().map(|client| client.stats().twice).sum();
    let ahead: u64 = world.clients.iter().map(|client| client.stats().ahead).sum();
    assert_eq!((twice, ahead), (0, 0));
}
