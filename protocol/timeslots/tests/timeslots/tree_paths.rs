//! Three tiers: no link carries two packets in a timeslot, for any matching.

use std::collections::BTreeSet;

use onepipe_timeslots::{
    Allocator, Config, FabricError, Paths, Schedule, Timeslot, Tree, TreePaths,
};
use proptest::prelude::*;

/// A fat tree of 8-port switches: 8 pods of 4 racks of 4.
const FAT: Tree =
    Tree { nodes: 128, rack_nodes: 4, pod_racks: 4, rack_links: 4, spines: 4, spine_links: 4 };
/// The testbed of 1Pipe, with four parallel links between switches.
const TESTBED: Tree =
    Tree { nodes: 32, rack_nodes: 8, pod_racks: 2, rack_links: 8, spines: 2, spine_links: 8 };

/// Returns a batch that is a nearly full matching in each timeslot.
fn schedule(tree: Tree, requests: &[(u32, u32, u32)]) -> Schedule {
    let mut allocator = Allocator::new(Config::new(tree.nodes)).expect("the settings are right");
    for &(src, dst, slots) in requests {
        let _ = allocator.request(src % tree.nodes, dst % tree.nodes, slots);
    }
    let mut schedule = Schedule::new(tree.nodes);
    schedule.fill(allocator.next_batch().grants());
    schedule
}

/// Returns the links between switches that a packet crosses, each by its lower switch (a rack or a
/// spine), its number there, and whether it leads up.
fn links(tree: Tree, src: u32, dst: u32, path: u8) -> Vec<(&'static str, u32, u32, bool)> {
    let [from, to] = [src, dst].map(|node| node / tree.rack_nodes);
    let (link, above) = (u32::from(path) % tree.rack_links, u32::from(path) / tree.rack_links);
    let mut links = vec![("rack", from, link, true), ("rack", to, link, false)];
    let pods = [from, to].map(|rack| rack / tree.pod_racks);
    if pods[0] != pods[1] {
        let queues = tree.rack_links / tree.spines;
        let [up, down] = pods.map(|pod| pod * tree.spines + link / queues);
        links.extend([("spine", up, above, true), ("spine", down, above, false)]);
    }
    links
}

fn check(tree: Tree, paths: &TreePaths, schedule: &Schedule, without_path: u32) {
    let mut without = 0;
    for slot in 0..64 {
        let mut seen = BTreeSet::new();
        for (src, dst) in schedule.pairs(slot) {
            let (src, dst) = (u32::from(src), u32::from(dst));
            let path = paths.of(src)[slot as usize];
            if src / tree.rack_nodes == dst / tree.rack_nodes {
                assert_eq!(path, Paths::NONE, "the packet stays in its rack");
            } else if path == Paths::NONE {
                without += 1;
            } else {
                for link in links(tree, src, dst, path) {
                    assert!(seen.insert(link), "two packets on {link:?} in timeslot {slot}");
                }
            }
        }
    }
    assert_eq!(without, without_path);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    //= spec/arbiter.md#R16
    #[test]
    fn no_link_carries_two_packets_in_a_timeslot(
        is_fat in any::<bool>(),
        requests in prop::collection::vec((0u32..128, 0u32..128, 1u32..64), 0..600),
    ) {
        // The last pod and its last rack may be incomplete.
        let tree = if is_fat { FAT } else { Tree { nodes: 31, ..TESTBED } };
        let schedule = schedule(tree, &requests);
        let mut paths = TreePaths::new(tree).expect("the tree is valid");
        let without_path = paths.assign(&schedule, Timeslot(0), 64);
        prop_assert_eq!(without_path, 0, "every packet has a path");
        check(tree, &paths, &schedule, 0);
    }
}

//= spec/arbiter.md#R17
#[test]
fn cut_link_is_unused_until_repaired() {
    let all: Vec<_> = (0..32).map(|src| (src, src + 16, 64)).collect();
    let schedule = schedule(TESTBED, &all);
    let mut paths = TreePaths::new(TESTBED).expect("the tree is valid");
    paths.set_cut(0, 3, true).expect("the link exists");
    let without_path = paths.assign(&schedule, Timeslot(0), 64);
    // Eight endpoints of a rack send, and eight receive, through seven links.
    assert_eq!(without_path, 2 * 64);
    check(TESTBED, &paths, &schedule, without_path);
    let uses = |paths: &TreePaths| (0..8).any(|src| paths.of(src).iter().any(|one| one % 8 == 3));
    assert!(!uses(&paths), "rack 0 does not use link 3");
    paths.set_cut(0, 3, false).expect("the link exists");
    assert_eq!(paths.assign(&schedule, Timeslot(0), 64), 0);
    assert!(uses(&paths), "the link is used again");
    paths.set_spine_cut(1, 7, true).expect("the link exists");
    let without_path = paths.assign(&schedule, Timeslot(0), 64);
    assert!(without_path > 0, "a spine with seven links bears seven packets");
    check(TESTBED, &paths, &schedule, without_path);
}

#[test]
fn invalid_trees_are_rejected() {
    let refused = |tree| TreePaths::new(tree).expect_err("there is no such tree").name;
    assert_eq!(refused(Tree { rack_links: 3, ..FAT }), "rack_links", "oversubscribed");
    assert_eq!(refused(Tree { spine_links: 3, ..FAT }), "spine_links", "oversubscribed");
    assert_eq!(refused(Tree { spines: 3, ..FAT }), "spines", "not evenly");
    let many = Tree { rack_links: 64, spines: 64, ..FAT };
    assert_eq!(refused(many), "spine_links", "256 paths");
    let FabricError { name, value } = TreePaths::new(Tree { rack_nodes: 0, ..FAT }).unwrap_err();
    assert_eq!((name, value), ("rack_nodes", 0));
}
