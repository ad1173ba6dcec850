//! Arbiters that die and return, control packets that are lost, links that lose packets: no
//! timeslot is granted twice, and all that was offered is sent (testing.md, rows 31 and 32).

use onepipe_sim_arbiter::{Arbitration, Offer, Setup, World};
use onepipe_sim_network::{Fault, LinkFaults, Loss, NodeId};
use onepipe_topology::Shape;

const MS: u64 = 1_000_000;

/// The rack with two arbiters, of which host 31 begins, and 30 hosts that offer frames to all.
fn rack(seed: u64, until_ns: u64) -> World {
    let offer = Some(Offer { until_ns, ..Offer::to_all(300) });
    let arbitration = Arbitration { arbiters: 2, endpoints: 30, ..Arbitration::of(32) };
    let (arbitration, has_witness) = (Some(arbitration), true);
    World::new(&Setup { offer, arbitration, has_witness, seed, ..Setup::rack() })
}

/// Who gives out timeslots.
fn primaries(world: &World) -> Vec<u32> {
    let is_primary = |host: &u32| world.arbiter(*host).is_some_and(|one| one.is_primary());
    (30..32).filter(is_primary).collect()
}

/// Runs in steps of 100 us and answers the longest time without a frame in a timeslot, in us.
fn longest_pause_us(world: &mut World, ns: u64) -> u64 {
    let (mut longest, mut pause) = (0, 0);
    for _ in 0..ns / 100_000 {
        let before = world.slots_sent();
        world.run_for_ns(100_000);
        pause = if world.slots_sent() == before { pause + 100 } else { 0 };
        longest = longest.max(pause);
    }
    longest
}

/// All that was offered is sent, and both ends agree on what was asked for and given.
fn assert_quiet(world: &World, what: &str) {
    let (waiting, sent, received) = world.plain_frames();
    assert!(sent > 10_000 && received > sent / 2, "{what}: {sent} and {received}");
    assert_eq!(waiting, 0, "{what}");
    for client in world.clients() {
        assert_eq!((client.backlog(), client.parked()), (0, 0), "{what}: {client:?}");
        assert_eq!(client.stats().twice, 0, "{what}");
        for dst in 0..30 {
            let (asked, given) = client.totals(onepipe_base::ProcessId(dst));
            assert_eq!(asked, given, "{what}, to {dst}");
        }
    }
    assert_eq!(world.witness().wrong, [""; 0], "{what}");
    assert!(world.witness().granted() >= world.slots_sent(), "{what}");
}

#[test]
fn the_secondary_takes_over_from_a_dead_arbiter_and_the_old_one_returns_harmlessly() {
    for seed in 1..=3 {
        let mut world = rack(seed, 12 * MS);
        world.run_for_ns(3 * MS);
        assert_eq!(primaries(&world), [31]);
        world.schedule(seed * 37_000, Fault::Crash(NodeId(31)));
        // A millisecond until the other knows, a lead and what the dead one may have granted
        // ahead, and a round trip for all to ask anew.
        let pause_us = longest_pause_us(&mut world, 3 * MS);
        assert!((500..=1_500).contains(&pause_us), "{pause_us} us");
        assert_eq!(primaries(&world), [30]);
        world.schedule(0, Fault::Restart(NodeId(31)));
        let pause_us = longest_pause_us(&mut world, 6 * MS);
        assert!(pause_us <= 200, "{pause_us} us: nobody notices");
        assert_eq!(primaries(&world), [30], "who returns does not push the other out");
        world.run_for_ns(4 * MS);
        assert_quiet(&world, &format!("seed {seed}"));
        let (_, sent, received) = world.plain_frames();
        assert_eq!(sent, received, "no link has lost any");
    }
}

#[test]
fn an_arbiter_that_dies_again_and_again_costs_pauses_and_nothing_else() {
    let mut world = rack(7, 16 * MS);
    for (ms, host, dies) in
        [(3, 31, true), (6, 31, false), (8, 30, true), (11, 30, false), (13, 31, true)]
    {
        let fault = if dies { Fault::Crash(NodeId(host)) } else { Fault::Restart(NodeId(host)) };
        world.schedule(ms * MS, fault);
    }
    world.run_for_ns(22 * MS);
    assert_eq!(primaries(&world), [30]);
    assert_quiet(&world, "after three deaths");
}

#[test]
fn lost_repeated_late_and_broken_frames_change_nothing_but_time() {
    let faults = [
        LinkFaults { loss: Loss::every(50_000), ..LinkFaults::default() },
        LinkFaults { burst_ppm: 2_000, burst_frames: 30, ..LinkFaults::default() },
        LinkFaults {
            duplicate_ppm: 200_000,
            reorder_ppm: 100_000,
            delay_ns_max: 50_000,
            ..LinkFaults::default()
        },
        LinkFaults { corrupt_ppm: 50_000, ..LinkFaults::default() },
    ];
    for (number, faults) in (0u64..).zip(faults) {
        let mut world = rack(10 + number, 7 * MS);
        for link in world.links() {
            world.schedule(2 * MS, Fault::Switches(link, faults));
            world.schedule(6 * MS, Fault::Switches(link, LinkFaults::default()));
        }
        world.run_for_ns(16 * MS);
        assert_quiet(&world, &format!("{faults:?}"));
        assert_eq!(primaries(&world).len(), 1, "{faults:?}");
    }
}

#[test]
fn arbiters_that_cannot_hear_each_other_grant_no_timeslot_twice() {
    // Each direction between the arbiters alone: what one says reaches nobody for a while.
    for (deaf, seed) in [(30, 21), (31, 22)] {
        let mut world = rack(seed, 12 * MS);
        world.run_for_ns(2 * MS);
        let link = world.down_link(deaf);
        world.schedule(MS, Fault::Cut(link));
        world.schedule(4 * MS, Fault::Mend(link));
        world.run_for_ns(16 * MS);
        assert_eq!(primaries(&world).len(), 1, "one yields when they hear each other again");
        assert_quiet(&world, &format!("{deaf} is deaf"));
    }
}

#[test]
fn an_arbiter_that_is_hardly_heard_is_replaced_while_it_still_grants() {
    let mut takeovers = 0;
    for seed in 34..38 {
        let mut world = rack(seed, 8 * MS);
        let link = world.card_link(31);
        let loss = LinkFaults { loss: Loss::every(850_000), ..LinkFaults::default() };
        world.schedule(2 * MS + seed * 13_000, Fault::Switches(link, loss));
        world.schedule(7 * MS, Fault::Switches(link, LinkFaults::default()));
        world.run_for_ns(13 * MS);
        takeovers += world.arbiter(30).map_or(0, |arbiter| arbiter.stats().takeovers);
        assert_quiet(&world, &format!("seed {seed}"));
    }
    assert!(takeovers >= 2, "{takeovers} in four runs");
}

#[test]
fn a_link_that_drops_is_left_alone_within_milliseconds_and_used_again_after_its_repair() {
    let setup = Setup {
        shape: Shape::leaf_spine(4, 4, 8).expect("it fits"),
        arbitration: Some(Arbitration { endpoints: 24, ..Arbitration::of(32) }),
        offer: Some(Offer { apart_hosts: 8, ..Offer::to_all(300) }),
        has_witness: true,
        ..Setup::rack()
    };
    let mut world = World::new(&setup);
    let link = world.up_link(0, 2);
    let in_ms = |world: &mut World| {
        let before = world.slots_on(link);
        world.run_for_ns(MS);
        world.slots_on(link) - before
    };
    world.run_for_ns(3 * MS);
    let healthy = in_ms(&mut world);
    assert!(healthy > 300, "a quarter of what eight hosts send: {healthy}");
    let loss = LinkFaults { loss: Loss::every(300_000), ..LinkFaults::default() };
    world.schedule(0, Fault::Switches(link, loss));
    let left_after = (1..=10).find(|_| in_ms(&mut world) == 0);
    assert!(left_after.is_some_and(|ms| ms <= 4), "after {left_after:?} ms");
    let of_all = |world: &World| {
        let links = (0..4).map(|nth| world.slots_on(world.up_link(0, nth)));
        links.sum::<u64>()
    };
    let before = of_all(&world);
    assert_eq!(in_ms(&mut world), 0);
    let more = of_all(&world) - before;
    // Eight hosts with 804 timeslots a millisecond, of which they want 30 %.
    assert!((1_700..2_200).contains(&more), "the three others bear it: {more}");
    world.schedule(0, Fault::Switches(link, LinkFaults::default()));
    let used_after = (1..=30).find(|_| in_ms(&mut world) > healthy / 2);
    assert!(used_after.is_some_and(|ms| ms <= 25), "after {used_after:?} ms");
    assert_eq!(world.witness().wrong, [""; 0]);
}

/// Five pods of a fat tree, and one more in which the arbiter is; a link from a spine to a core
/// loses packets, then one from a rack to a spine.
#[test]
fn through_three_tiers_a_link_that_drops_is_left_alone_and_used_again_after_its_repair() {
    let setup = Setup {
        shape: Shape::fat_tree(6).expect("six is even"),
        arbitration: Some(Arbitration { endpoints: 45, ..Arbitration::of(54) }),
        offer: Some(Offer { apart_hosts: 9, ..Offer::to_all(300) }),
        has_witness: true,
        ..Setup::rack()
    };
    for is_of_core in [true, false] {
        let mut world = World::new(&setup);
        let link = if is_of_core { world.core_link(0, 1, 1) } else { world.up_link(0, 1) };
        let in_ms = |world: &mut World| {
            let before = world.slots_on(link);
            world.run_for_ns(MS);
            world.slots_on(link) - before
        };
        world.run_for_ns(2 * MS);
        let healthy = in_ms(&mut world);
        assert!(healthy > 100, "a third of what three hosts send: {healthy}");
        let loss = LinkFaults { loss: Loss::every(400_000), ..LinkFaults::default() };
        world.schedule(0, Fault::Switches(link, loss));
        let left_after = (1..=10).find(|_| in_ms(&mut world) == 0);
        assert!(left_after.is_some_and(|ms| ms <= 5), "after {left_after:?} ms");
        let lost = world.arbiter(53).map(|arbiter| arbiter.stats().lost);
        assert!(lost.is_some_and(|lost| lost > 0));
        // It is all that is avoided: its neighbours bear what it bore.
        let others = |world: &World| match is_of_core {
            true => world.slots_on(world.core_link(0, 1, 0)),
            false => world.slots_on(world.up_link(0, 0)),
        };
        let before = others(&world);
        assert_eq!(in_ms(&mut world), 0);
        assert!(others(&world) - before > healthy / 2, "{}", others(&world) - before);
        world.schedule(0, Fault::Switches(link, LinkFaults::default()));
        let used_after = (1..=40).find(|_| in_ms(&mut world) > healthy / 2);
        assert!(used_after.is_some_and(|ms| ms <= 25), "after {used_after:?} ms");
        assert_eq!(world.witness().wrong, [""; 0]);
    }
}
