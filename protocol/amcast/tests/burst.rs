//! After a burst of loss: what was lost is asked for in strides that double, and once.

mod world;

use onepipe_amcast::GroupSet;
use onepipe_base::ProcessId;
use onepipe_wire::{Amcast, Frame, Opcode};
use world::{Plan, World};

/// How many messages are lost.
const LOST: usize = 400;
/// Until then proposals are lost that go to whom they are lost for.
const LOST_UNTIL_NS: u64 = 60_000;

/// A group of three members and a replica; its leader's proposals do not reach `lost_for`.
fn burst(is_lost: fn(&World, &Frame<'_>) -> bool) -> World {
    let window = LOST as u32 + 1;
    let mut world = World::new(Plan { window, replicas: 1, busy_threshold: 1_024, ..Plan::calm() });
    world.cuts = is_lost;
    for _ in 0..LOST {
        assert!(world.send_one(0, GroupSet::from_bits(1)));
    }
    world.run_until(LOST_UNTIL_NS);
    // It shows that something is missing.
    assert!(world.send_one(0, GroupSet::from_bits(1)));
    world
}

/// When the replica had delivered everything, in ns after the burst.
fn recovery_ns(world: &mut World) -> u64 {
    while world.delivered[0].len() < LOST + 1 {
        assert!(world.now < 100_000_000, "{} delivered", world.delivered[0].len());
        world.run_until(world.now + 1_000);
    }
    assert_eq!(world.wrong, None);
    world.now - LOST_UNTIL_NS
}

fn is_early_proposal(world: &World, frame: &Frame<'_>) -> bool {
    world.now < LOST_UNTIL_NS && frame.opcode == Opcode::Prop
}

#[test]
fn followers_fetch_a_burst_in_a_few_round_trips() {
    let mut world =
        burst(|world, frame| is_early_proposal(world, frame) && frame.header.dst() != ProcessId(3));
    let took_ns = recovery_ns(&mut world);
    // Strides of 32 would be 13 round trips of 10 us, and what waits for its time is slower.
    assert!(took_ns < 140_000, "{took_ns} ns");
}

#[test]
fn a_replica_fetches_a_burst_in_a_few_round_trips() {
    let mut world =
        burst(|world, frame| is_early_proposal(world, frame) && frame.header.dst() == ProcessId(3));
    let took_ns = recovery_ns(&mut world);
    assert!(took_ns < 100_000, "{took_ns} ns");
    let retransmitted: u64 =
        world.members.iter().flatten().map(|member| member.stats().retransmitted).sum();
    assert!(retransmitted < LOST as u64 + 8, "{retransmitted}: each once");
}

#[test]
fn what_came_behind_a_burst_is_not_sent_again() {
    let mut world = burst(|world, frame| {
        let (body, _) = Amcast::parse(frame.payload).expect("a machine has written it");
        is_early_proposal(world, frame) && (100..200).contains(&body.position)
    });
    let took_ns = recovery_ns(&mut world);
    assert!(took_ns < 200_000, "{took_ns} ns");
    let leader = world.members[0].as_ref().expect("it lives").stats().retransmitted;
    // To each of two followers what it has lost, and a few that time has had it say.
    assert!(leader < 2 * 100 + 100, "{leader}");
}
