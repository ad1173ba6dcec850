//! Acknowledgements go with what is said anyway, where timeslots are long, too.

use onepipe_base::ProcessId;

use crate::world::World;

const MS: u64 = 1_000_000;
/// Of 600 Mbit/s: a batch takes 1.3 ms, and a request is answered by what is given in it.
const LONG_SLOT_NS: u64 = 20_000;

/// Everybody always wants more of all others.
fn busy(world: &mut World, ms: u64) {
    for _ in 0..ms {
        for (src, dst) in (0..8).flat_map(|src| (0..8).map(move |dst| (src, dst))) {
            while src != dst && world.clients[src as usize].queued(ProcessId(dst)) < 40 {
                assert!(world.enqueue(src, dst, 1_300));
            }
        }
        world.run_for(MS);
    }
}

#[test]
fn none_goes_alone_to_who_is_given_timeslots_in_each_batch() {
    let mut world = World::with_slots_of(LONG_SLOT_NS, 8);
    busy(&mut world, 20);
    let before = *world.arbiters[0].comm_stats();
    busy(&mut world, 200);
    let now = *world.arbiters[0].comm_stats();
    let (sent, acks) = (now.sent - before.sent, now.sent_acks - before.sent_acks);
    assert!(sent > 8 * 140 && acks * 50 < sent, "{acks} of {sent} packets");
    assert_eq!(now.bad + now.again, 0);
}

/// All want the same destination: most wait for several batches, and are told nothing by them. They
/// say again what is not acknowledged in time, and begin anew when that is of no avail.
#[test]
fn nobody_waits_for_one_so_long_that_it_begins_anew() {
    let mut world = World::with_slots_of(LONG_SLOT_NS, 24);
    for _ in 0..5 {
        for (src, _) in (1..24).flat_map(|src| (0..40).map(move |nth| (src, nth))) {
            assert!(world.enqueue(src, 0, 1_300));
        }
        world.run_for(40 * MS);
        world.assert_quiet();
    }
    for client in &world.clients {
        let stats = client.stats();
        assert_eq!((stats.resets, stats.control_bad), (1, 0), "{stats:?}");
    }
    let resets = world.arbiters[0].comm_stats().resets;
    assert_eq!(resets, 24, "when it began");
}
