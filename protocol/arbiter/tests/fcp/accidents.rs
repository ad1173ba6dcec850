//! Lost, duplicated, reordered, stale and corrupt control packets cost time and nothing else.

use onepipe_arbiter::{Arbiter, Timeslot};
use onepipe_base::ProcessId;
use onepipe_wire::{Fcp, Opcode};

use crate::world::{Channel, Draws, SLOT_NS, World, arbiter_config};

const MS: u64 = 1_000_000;

/// Traffic at random for a while, under accidents; then none of either.
fn survive(seed: u64, control: Channel) -> World {
    let nodes = 3 + (seed % 6) as u32;
    let mut world = World::new(nodes, 1, seed);
    world.control = control;
    let mut draws = Draws(seed ^ 0x5eed);
    for _ in 0..300 {
        for _ in 0..draws.below(4) {
            let (src, dst) = (draws.below(u64::from(nodes)), draws.below(u64::from(nodes)));
            if src != dst {
                world.enqueue(src as u32, dst as u32, 12 + draws.below(200) as usize);
            }
        }
        world.run_for(draws.below(20 * SLOT_NS));
    }
    world.control = Channel::default();
    world.run_for(30 * MS);
    world.assert_quiet();
    world.assert_all_came();
    world
}

#[test]
fn whatever_happens_to_control_packets_costs_time_only() {
    let (mut lost, mut again, mut bad) = (0, 0, 0);
    for seed in 0..40 {
        let mut draws = Draws(seed);
        let mut some = || draws.below(3) * (2 + draws.below(6));
        let control = Channel {
            lose: some(),
            repeat: some(),
            corrupt: some(),
            jitter_ns: some() * 10_000,
            stale_ns: some() * 300_000,
        };
        let world = survive(seed, control);
        lost += world.clients.iter().map(|client| client.stats().late).sum::<u64>();
        again += world.arbiters[0].comm_stats().again;
        bad += world.arbiters[0].comm_stats().bad;
    }
    assert!(lost > 0 && again > 100 && bad > 100, "{lost} {again} {bad}");
}

#[test]
fn each_kind_of_accident_alone_costs_time_only() {
    for seed in 100..110 {
        let none = Channel::default();
        survive(seed, Channel { lose: 2, ..none });
        survive(seed, Channel { repeat: 1, stale_ns: 2 * MS, ..none });
        survive(seed, Channel { jitter_ns: 300_000, ..none });
        survive(seed, Channel { corrupt: 2, ..none });
    }
}

#[test]
fn a_burst_of_bad_checks_starts_a_reset_that_takes_one_round_trip() {
    let mut world = World::new(3, 1, 7);
    world.enqueue(0, 2, 200);
    world.run_for(2 * MS);
    world.assert_quiet();
    // Ten packets of nobody who is in step.
    let now = world.now;
    for number in 1..=10 {
        let mut bytes = [0; 100];
        let mut room = [0; 48];
        let writer = onepipe_wire::FcpWriter::new(&mut room, (0, u64::MAX)).expect("a front");
        let length = writer.finish(4_711);
        bytes[52..52 + length].copy_from_slice(&room[..length]);
        let header = onepipe_wire::Header::new(
            Opcode::Fcp,
            ProcessId(0),
            ProcessId(3),
            onepipe_base::Incarnation(1),
        );
        let (at, promises) = (world.at().sync, header.promises(world.at().sync));
        let header = header.stamped(at, promises, onepipe_base::Psn(number));
        let length = onepipe_wire::seal(&mut bytes, header, length);
        world.post(now + 100, ProcessId(3), bytes[..length].to_vec());
    }
    let before = world.arbiters[0].comm_stats().resets;
    world.run_for(99);
    assert_eq!(world.arbiters[0].comm_stats().resets, before);
    world.run_for(1);
    assert_eq!(world.arbiters[0].comm_stats().resets, before + 1);
    // What waits when the reset comes is asked for in the answer to it.
    world.enqueue(0, 1, 200);
    world.run_for(2 * world.delay_ns + 1);
    assert_eq!(world.arbiters[0].comm().owed(0), 1, "told anew within one round trip");
    world.run_for(2 * MS);
    world.assert_quiet();
    world.assert_all_came();
}

#[test]
fn resets_that_cross_converge_on_the_newer() {
    let mut world = World::new(3, 1, 7);
    world.enqueue(0, 2, 200);
    world.run_for(2 * MS);
    // Both ends are new, and each finds the other one a stranger.
    world.restart_arbiter(0);
    world.restart_client(0);
    world.enqueue(0, 1, 200);
    world.enqueue(1, 2, 200);
    world.run_for(MS);
    world.assert_quiet();
    world.assert_all_came();
    assert!(world.clients.iter().all(|client| client.stats().resets <= 2));
}

#[test]
fn what_a_former_life_asked_for_is_forgotten() {
    let mut world = World::new(4, 1, 3);
    (0..200).for_each(|_| assert!(world.enqueue(0, 3, 200)));
    world.run_for(100_000);
    world.restart_client(0);
    let from = Timeslot(world.timeslot());
    world.run_for(5 * MS);
    world.assert_quiet();
    assert!(world.granted_to(0, from) < 150, "what was granted already, and no more");
    world.enqueue(0, 3, 200);
    world.run_for(MS);
    world.assert_all_came();
}

#[test]
fn an_arbiter_that_begins_anew_is_told_what_is_wanted() {
    let mut world = World::new(4, 1, 3);
    for src in 0..3 {
        (0..200).for_each(|_| assert!(world.enqueue(src, 3, 200)));
    }
    world.run_for(200_000);
    // At once, while what it has given out lies ahead.
    world.restart_arbiter(0);
    world.run_for(20 * MS);
    world.assert_quiet();
    world.assert_all_came();
}

#[test]
fn totals_go_on_across_the_wrap_of_sixteen_bits() {
    let mut world = World::new(2, 1, 9);
    world.control = Channel { lose: 50, ..Channel::default() };
    let mut taken = 0u32;
    while taken < 70_000 {
        for _ in 0..200 {
            taken += u32::from(world.enqueue(0, 1, 220));
        }
        world.run_for(100 * SLOT_NS);
    }
    world.run_for(30 * MS);
    world.assert_quiet();
    world.assert_all_came();
    let (asked, _) = world.clients[0].totals(ProcessId(1));
    assert!(world.arbiters[0].comm_stats().told > 70_000 && u32::from(asked) < 70_000);
}

#[test]
fn no_packet_is_said_again_for_ever() {
    let mut world = World::new(4, 1, 3);
    world.enqueue(0, 3, 200);
    world.run_for(20 * MS);
    let count = |world: &World| {
        let clients = world.clients.iter().map(|client| client.stats().control_sent);
        clients.sum::<u64>() + world.arbiters[0].comm_stats().sent
    };
    let before = count(&world);
    world.run_for(200 * MS);
    assert_eq!(count(&world), before, "who wants nothing says nothing");
}

#[test]
fn control_packets_say_their_number_in_the_header() {
    let mut world = World::new(3, 1, 3);
    let mut last = [0; 4];
    world.fate = Box::new(move |_, from, _, frame| {
        if frame.opcode == Opcode::Fcp && from == ProcessId(0) {
            let number = frame.header.psn().0;
            assert!(Fcp::parse(number, frame.payload).is_ok_and(|fcp| fcp.sequence == number));
            assert_eq!(number, last[from.index()] + 1);
            last[from.index()] = number;
        }
        false
    });
    world.run_for(MS);
    world.enqueue(0, 2, 200);
    world.run_for(MS);
    world.assert_all_came();
}

#[test]
fn what_is_lost_is_said_again_soon() {
    for lost in 0..3 {
        let mut world = World::new(3, 1, 3);
        world.run_for(MS);
        let (mut met, is_request) = (0, lost == 0);
        world.fate = Box::new(move |_, from, _, frame| {
            let is_it = frame.opcode == Opcode::Fcp && (from == ProcessId(0)) == is_request;
            met += u32::from(is_it);
            // The request, the first grant, or that and the next.
            is_it && met <= lost.max(1)
        });
        assert!(world.enqueue(0, 2, 200));
        // Each time 200 us, and what it takes anyhow.
        world.run_for(u64::from(lost.max(1)) * 320_000 + 200_000);
        world.assert_all_came();
    }
}

/// More destinations than the arbiter keeps in mind to tell again: they ask.
#[test]
fn grants_for_many_destinations_that_are_all_lost_are_asked_for() {
    let mut world = World::new(45, 1, 3);
    let mut config = arbiter_config(0, 45, 1);
    config.allocator.batch_slots = 64;
    world.arbiters[0] = Arbiter::new(config).expect("right");
    world.run_for(MS);
    let until = world.now + 500_000;
    world.fate = Box::new(move |now, from, _, _| from == ProcessId(45) && now < until);
    (1..45).for_each(|dst| assert!(world.enqueue(0, dst, 200)));
    world.run_for(20 * MS);
    world.assert_quiet();
    world.assert_all_came();
}

#[test]
fn who_comes_too_late_for_its_timeslots_asks_for_others() {
    let mut world = World::new(3, 1, 3);
    (0..100).for_each(|_| assert!(world.enqueue(0, 2, 200)));
    for _ in 0..8 {
        world.run_for(70_000);
        // Nobody does anything for a while; the world looks at how late packets leave.
        world.now += 40_000;
    }
    world.run_for(10 * MS);
    world.assert_quiet();
    world.assert_all_came();
    assert!(world.clients[0].stats().late > 0);
}
