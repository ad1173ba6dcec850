//! Path selection: no link between a rack and the core exceeds its share in any timeslot.

use std::collections::BTreeMap;

use onepipe_timeslots::{Allocator, Config, Fabric, Paths, Schedule, Timeslot};
use proptest::prelude::*;

/// Returns the schedule of a batch for these requests, as far as they fit.
fn schedule(nodes: u32, requests: &[(u32, u32, u32)]) -> Schedule {
    let mut allocator = Allocator::new(Config::new(nodes)).expect("the settings are right");
    for &(src, dst, slots) in requests {
        let _ = allocator.request(src % nodes, dst % nodes, slots);
    }
    let mut schedule = Schedule::new(nodes);
    schedule.fill(allocator.next_batch().grants());
    schedule
}

/// Returns the packets of a timeslot on each link, by (leaves the rack, rack, path).
fn links(paths: &Paths, schedule: &Schedule, slot: u32) -> BTreeMap<(bool, u32, u8), u32> {
    let rack_nodes = paths.fabric().rack_nodes;
    let mut links = BTreeMap::new();
    for (src, dst) in schedule.pairs(slot) {
        let path = paths.of(u32::from(src))[slot as usize];
        let racks = [src, dst].map(|node| u32::from(node) / rack_nodes);
        if racks[0] == racks[1] {
            assert_eq!(path, Paths::NONE, "the packet stays in its rack");
        } else if path != Paths::NONE {
            *links.entry((true, racks[0], path)).or_insert(0) += 1;
            *links.entry((false, racks[1], path)).or_insert(0) += 1;
        }
    }
    links
}

/// Returns the maximum number of packets that a rack sends to, or receives from, others.
fn busiest(schedule: &Schedule, rack_nodes: u32, slot: u32) -> u32 {
    let mut packets = BTreeMap::<(bool, u32), u32>::new();
    for (src, dst) in schedule.pairs(slot) {
        let racks = [src, dst].map(|node| u32::from(node) / rack_nodes);
        if racks[0] != racks[1] {
            *packets.entry((true, racks[0])).or_default() += 1;
            *packets.entry((false, racks[1])).or_default() += 1;
        }
    }
    packets.values().max().copied().unwrap_or(0)
}

fn fabric() -> impl Strategy<Value = Fabric> {
    let numbers = (2u32..80, 1u32..17, 1u32..9, any::<bool>());
    numbers.prop_map(|(nodes, rack_nodes, paths, is_strict)| Fabric {
        nodes,
        rack_nodes,
        paths,
        is_strict,
    })
}

fn requests() -> impl Strategy<Value = Vec<(u32, u32, u32)>> {
    prop::collection::vec((0u32..80, 0u32..80, 1u32..64), 0..300)
}

proptest! {
    //= spec/arbiter.md#R16
    #[test]
    fn links_carry_at_most_their_share(
        fabric in fabric(),
        requests in requests(),
        start in any::<u64>(),
    ) {
        let schedule = schedule(fabric.nodes, &requests);
        let mut paths = Paths::new(fabric).expect("the fabric is valid");
        let without_path = paths.assign(&schedule, Timeslot(start >> 1), 64);
        prop_assert_eq!(without_path, 0, "every packet has a path");
        for slot in 0..64 {
            let whole = match fabric.is_strict {
                true => busiest(&schedule, fabric.rack_nodes, slot),
                false => fabric.rack_nodes,
            };
            let share = whole.div_ceil(fabric.paths);
            for (link, packets) in links(&paths, &schedule, slot) {
                prop_assert!(u32::from(link.2) < fabric.paths);
                prop_assert!(packets <= share, "{packets} on {link:?}, not {share}, in {slot}");
            }
        }
    }

    //= spec/arbiter.md#R17
    #[test]
    fn failed_paths_are_unused_until_repaired(
        fabric in fabric(),
        requests in requests(),
        failed in 0u32..8,
        cut in (0u32..80, 0u32..8),
        start in any::<u64>(),
    ) {
        let schedule = schedule(fabric.nodes, &requests);
        let mut paths = Paths::new(fabric).expect("the fabric is valid");
        let failed = failed % fabric.paths;
        let cut = (cut.0 % paths.racks(), cut.1 % fabric.paths);
        paths.set_failed(failed, true).expect("the path exists");
        paths.set_cut(cut.0, cut.1, true).expect("the link exists");
        let without_path = paths.assign(&schedule, Timeslot(start >> 1), 64);
        let share = fabric.rack_nodes.div_ceil(fabric.paths);
        let mut placed = 0;
        for slot in 0..64 {
            for ((leaves, rack, path), packets) in links(&paths, &schedule, slot) {
                prop_assert!(u32::from(path) != failed);
                prop_assert!((rack, u32::from(path)) != cut);
                prop_assert!(packets <= share);
                placed += if leaves { packets } else { 0 };
            }
        }
        let crossing = |slot| {
            let pairs = schedule.pairs(slot);
            pairs.filter(|(src, dst)| {
                u32::from(*src) / fabric.rack_nodes != u32::from(*dst) / fabric.rack_nodes
            }).count() as u32
        };
        prop_assert_eq!(placed + without_path, (0..64).map(crossing).sum::<u32>());

        paths.set_failed(failed, false).expect("the path exists");
        paths.set_cut(cut.0, cut.1, false).expect("the link exists");
        prop_assert_eq!(paths.assign(&schedule, Timeslot(0), 64), 0, "everything is repaired");
    }
}

//= spec/arbiter.md#R18
/// A pair alone that always took the same path would get nothing through if that is dead, and the
/// receiver would detect no loss.
#[test]
fn one_pair_spreads_over_all_paths() {
    let fabric = Fabric { nodes: 4, rack_nodes: 1, paths: 4, is_strict: false };
    let mut paths = Paths::new(fabric).expect("the fabric is valid");
    let alone = schedule(4, &[(0, 1, 1)]);
    // One sender, or as many as there are paths, twice as many, or a whole batch.
    for every in [1, 4, 8, 16, 64, 89] {
        let mut taken: BTreeMap<u8, u32> = BTreeMap::new();
        for nth in 0..400 {
            assert_eq!(paths.assign(&alone, Timeslot(nth * every), 1), 0);
            *taken.entry(paths.of(0)[0]).or_default() += 1;
        }
        assert!(taken.len() == 4 && taken.values().all(|count| *count > 60), "{every}: {taken:?}");
    }
}

#[test]
fn recolours_other_packets_when_necessary() {
    // Three racks of two. The last packet could leave by path 1 only and enter by path 0 only, so
    // the packet that enters the same rack, and those of its alternating path, are recoloured.
    let fabric = Fabric { nodes: 6, rack_nodes: 2, paths: 2, is_strict: true };
    let mut paths = Paths::new(fabric).expect("the fabric is valid");
    let requests = [(0, 4, 1), (1, 2, 1), (4, 0, 1)];
    // A timeslot in which the first colour stands for the first path.
    let first = |start: &Timeslot| {
        assert_eq!(paths.assign(&schedule(6, &requests), *start, 1), 0);
        paths.of(0)[0] == 0
    };
    let start = (0..64).map(Timeslot).find(first).expect("one of 64 timeslots");
    let mut paths = Paths::new(fabric).expect("the fabric is valid");
    assert_eq!(paths.assign(&schedule(6, &requests), start, 1), 0);
    assert_eq!([0, 1, 4].map(|src| paths.of(src)[0]), [0, 1, 0]);
    let requests = [(0, 4, 1), (1, 2, 1), (4, 0, 1), (5, 3, 1)];
    assert_eq!(paths.assign(&schedule(6, &requests), start, 1), 0);
    assert_eq!([0, 1, 4, 5].map(|src| paths.of(src)[0]), [1, 0, 0, 1]);
    assert_eq!((paths.stats().flips, paths.stats().packets), (1, 7));
}

#[test]
fn uncoloured_edges_do_not_overwrite_each_other() {
    // Nearly all endpoints send, by one path, and some find no colour at first.
    let fabric = Fabric { nodes: 9, rack_nodes: 2, paths: 1, is_strict: false };
    let mut paths = Paths::new(fabric).expect("the fabric is valid");
    let requests = [
        (2, 5, 2),
        (7, 0, 14),
        (0, 8, 1),
        (3, 1, 1),
        (7, 3, 1),
        (0, 4, 14),
        (4, 2, 15),
        (5, 8, 14),
        (2, 0, 1),
        (1, 6, 15),
        (8, 5, 13),
        (6, 1, 14),
        (3, 7, 14),
    ];
    assert_eq!(paths.assign(&schedule(9, &requests), Timeslot(0), 64), 0);
}

//= spec/arbiter.md#R17
#[test]
fn without_paths_nothing_leaves_a_rack() {
    let fabric = Fabric { nodes: 4, rack_nodes: 2, paths: 1, is_strict: false };
    let mut paths = Paths::new(fabric).expect("the fabric is valid");
    paths.set_failed(0, true).expect("the path exists");
    let two = schedule(4, &[(0, 2, 3), (0, 1, 2)]);
    assert_eq!(paths.assign(&two, Timeslot(0), 64), 3);
    assert_eq!(paths.stats().without_path, 3);
    assert!(paths.set_failed(1, true).is_err() && paths.set_cut(2, 0, true).is_err());
    assert!(paths.set_cut(0, 1, true).is_err());
    for (rack_nodes, count) in [(0, 1), (65, 1), (1, 0), (1, 65)] {
        let fabric = Fabric { nodes: 4, rack_nodes, paths: count, is_strict: false };
        assert!(Paths::new(fabric).is_err());
    }
}
