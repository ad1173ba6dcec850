//! Recovery from a burst of loss: requests double in length, and nothing is retransmitted twice.

mod world;

use onepipe_amcast::GroupSet;
use onepipe_base::ProcessId;
use onepipe_wire::{Amcast, Frame, Opcode};
use world::{Plan, World};

/// Number of messages lost.
const LOST: usize = 400;
/// End of the burst: proposals that `is_lost` selects are lost until then.
const LOST_UNTIL_NS: u64 = 60_000;

/// Runs a group of three members and a replica through a burst of loss.
fn burst(is_lost: fn(&World, &Frame<'_>) -> bool) -> World {
    let window = LOST as u32 + 1;
    let mut world = World::new(Plan { window, replicas: 1, busy_threshold: 1_024, ..Plan::calm() });
    world.cuts = is_lost;
    for _ in 0..LOST {
        assert!(world.send_one(0, GroupSet::from_bits(1)));
    }
    world.run_until(LOST_UNTIL_NS);
    // A further message reveals the gap.
    assert!(world.send_one(0, GroupSet::from_bits(1)));
    world
}

/// Returns the time in ns from the end of the burst until the replica has delivered everything.
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
    // Requests of 32 positions each would take 13 round trips of 10 us, and timeouts take longer.
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
    // Each of two followers gets what it has lost, and a few timeouts retransmit.
    assert!(leader < 2 * 100 + 100, "{leader}");
}
