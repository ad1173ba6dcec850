//! Random faults at random times under random frame faults.

use crate::fabric;

use fabric::{Fabric, FrameFaults, process};
use onepipe_base::{Incarnation, Instance};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

#[derive(Clone, Debug)]
enum Fault {
    Kill { node: usize },
    Restart { node: usize },
    Cut { node: usize, port: usize, for_ns: u64 },
    Isolate { node: usize, for_ns: u64 },
    CrashController,
    Takeover { replica: usize },
}

fn any_fault() -> impl Strategy<Value = Fault> {
    let ns = prop_oneof![1_000u64..60_000, 60_000u64..900_000];
    prop_oneof![
        3 => (0usize..64).prop_map(|node| Fault::Kill { node }),
        2 => (0usize..64).prop_map(|node| Fault::Restart { node }),
        3 => (0usize..64, 0usize..8, ns.clone())
            .prop_map(|(node, port, for_ns)| Fault::Cut { node, port, for_ns }),
        1 => (0usize..64, ns).prop_map(|(node, for_ns)| Fault::Isolate { node, for_ns }),
        1 => Just(Fault::CrashController),
        1 => (0usize..2).prop_map(|replica| Fault::Takeover { replica }),
    ]
}

fn any_frame_faults() -> impl Strategy<Value = FrameFaults> {
    prop_oneof![
        Just(FrameFaults { lost: 0, duplicated: 0, jitter_ns: 0 }),
        (0u64..100, 0u64..100, 0u64..10_000)
            .prop_map(|(lost, duplicated, jitter_ns)| FrameFaults { lost, duplicated, jitter_ns }),
    ]
}

/// A drawn scenario: what fails when.
#[derive(Clone, Debug)]
struct Scenario {
    seed: u64,
    shape: u8,
    flat: bool,
    frame_faults: FrameFaults,
    crash_after: Option<u64>,
    faults: Vec<(u64, Fault)>,
}

fn any_scenario() -> impl Strategy<Value = Scenario> {
    let faults = prop::collection::vec((0u64..500_000, any_fault()), 1..6);
    let crash = prop::option::of(0u64..60);
    (any::<u64>(), 0u8..5, any::<bool>(), any_frame_faults(), crash, faults).prop_map(
        |(seed, shape, flat, frame_faults, crash_after, faults)| Scenario {
            seed,
            shape,
            flat,
            frame_faults,
            crash_after,
            faults,
        },
    )
}

fn run_scenario(scenario: &Scenario) -> Fabric {
    let mut fabric = match scenario.shape {
        0 => Fabric::leaf_spine(2, 1, 2, scenario.seed),
        1 => Fabric::leaf_spine(3, 2, 2, scenario.seed),
        2 => Fabric::leaf_spine(4, 3, 1, scenario.seed),
        3 => Fabric::mesh(5, scenario.seed),
        _ => Fabric::tower(3, 2, scenario.seed),
    };
    fabric.flat = scenario.flat;
    fabric.start_replica(0);
    fabric.start_replica(1);
    fabric.run(fabric.now + MS);
    fabric.campaign(0);
    fabric.run(fabric.now + 2 * MS);
    fabric.frame_faults = scenario.frame_faults;
    fabric.crash_after = scenario.crash_after;
    // Attachments of controllers stay: a fabric without any decides nothing.
    let protected: Vec<usize> =
        fabric.replicas.iter().filter_map(|entry| Some(entry.attached_to?.0)).collect();
    let mut repairs = Vec::new();
    for (pause, fault) in &scenario.faults {
        fabric.run(fabric.now + pause);
        let pick = |node: usize| {
            let others: Vec<usize> =
                (0..fabric.nodes.len()).filter(|node| !protected.contains(node)).collect();
            others[node % others.len()]
        };
        match *fault {
            Fault::Kill { node } => {
                let node = pick(node);
                fabric.kill(node);
            }
            Fault::Restart { node } => {
                let node = pick(node);
                fabric.kill(node);
                fabric.start(node);
            }
            Fault::Cut { node, port, for_ns } => {
                let node = pick(node);
                // One dead link of a mesh is a partitioned pair: no failure is exact then.
                if scenario.shape == 3 {
                    continue;
                }
                let port = port % fabric.nodes[node].ports.len();
                fabric.cut(node, port, true);
                repairs.push((fabric.now + for_ns, node, port));
            }
            Fault::Isolate { node, for_ns } => {
                let node = pick(node);
                for port in 0..fabric.nodes[node].ports.len() {
                    fabric.cut(node, port, true);
                    repairs.push((fabric.now + for_ns, node, port));
                }
            }
            Fault::CrashController => {
                if let Some(active) = fabric.active {
                    fabric.crash_replica(active);
                }
            }
            Fault::Takeover { replica } => {
                // The lease expires although its holder is running and believes to be active.
                fabric.store.expire_lease();
                fabric.campaign(replica);
            }
        }
        advance_faults(&mut fabric, &mut repairs);
    }
    fabric.run(fabric.now + 300_000);
    for (at, node, port) in repairs {
        fabric.run(at.max(fabric.now));
        fabric.cut(node, port, false);
    }
    fabric.crash_after = None;
    fabric.frame_faults = FrameFaults { lost: 0, duplicated: 0, jitter_ns: 0 };
    fabric.run(fabric.now + MS);
    for replica in 0..2 {
        if fabric.replicas[replica].machine.is_none() {
            fabric.start_replica(replica);
        }
    }
    if fabric.active.is_none() {
        fabric.store.expire_lease();
        fabric.campaign(1);
    }
    fabric.run(fabric.now + 15 * MS);
    fabric
}

/// Repairs what is due, and lets the other replica take over if none is active.
fn advance_faults(fabric: &mut Fabric, repairs: &mut Vec<(u64, usize, usize)>) {
    let now = fabric.now;
    for (_, node, port) in repairs.extract_if(.., |(at, _, _)| *at <= now) {
        fabric.cut(node, port, false);
    }
    if fabric.active.is_none() {
        for replica in [1, 0] {
            if fabric.replicas[replica].machine.is_some() && fabric.active.is_none() {
                fabric.store.expire_lease();
                fabric.campaign(replica);
            }
        }
        for replica in 0..2 {
            if fabric.replicas[replica].machine.is_none() {
                fabric.start_replica(replica);
            }
        }
    }
}

/// Whether a controller has counted an inexact failure or a partition.
fn is_inexact(fabric: &Fabric) -> bool {
    let stats = fabric.replicas.iter().filter_map(|entry| entry.machine.as_ref()).map(|machine| {
        let stats = machine.stats();
        stats.inexact + stats.partitions
    });
    stats.sum::<u64>() > 0
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn safety_and_liveness_under_random_faults(scenario in any_scenario()) {
        let fabric = run_scenario(&scenario);
        if !is_inexact(&fabric) {
            prop_assert_eq!(fabric.check_safety(), Ok(()));
        }
        prop_assert_eq!(fabric.check_liveness(), Ok(()));
    }
}

//= spec/failure.md#R31
#[test]
fn controller_may_crash_after_any_step() {
    for flat in [false, true] {
        for crash_after in 0..120 {
            let faults = vec![(0, Fault::Kill { node: 3 }), (90_000, Fault::Kill { node: 0 })];
            let frame_faults = FrameFaults { lost: 0, duplicated: 0, jitter_ns: 0 };
            let crash_after = Some(crash_after);
            let scenario = Scenario { seed: 7, shape: 1, flat, frame_faults, crash_after, faults };
            let fabric = run_scenario(&scenario);
            assert!(!is_inexact(&fabric));
            fabric.check_safety().unwrap_or_else(|wrong| panic!("{crash_after:?}: {wrong}"));
            fabric.check_liveness().unwrap_or_else(|wrong| panic!("{crash_after:?}: {wrong}"));
            let last = fabric.find(process(1));
            assert!(!fabric.decided.contains_key(&fabric.nodes[last].instance()));
        }
    }
}

/// A spine whose link to the controller's leaf was cut is to be frozen by all. The other spine dies
/// while the flood is in progress, so only that leaf receives it, when the link is repaired
/// already: no instance has a path to the controller except those below its leaf, unless the spine
/// restarts.
#[test]
fn switch_declared_dead_at_one_end_comes_back() {
    for flat in [false, true] {
        let cut = Fault::Cut { node: 28, port: 3, for_ns: 1_000 };
        let faults = vec![(157_221, cut), (317_779, Fault::Kill { node: 29 })];
        let frame_faults = FrameFaults { lost: 19, duplicated: 8, jitter_ns: 7_757 };
        let seed = 2_087_116_351_397_513_907;
        let scenario = Scenario { seed, shape: 1, flat, frame_faults, crash_after: None, faults };
        let fabric = run_scenario(&scenario);
        assert!(!is_inexact(&fabric));
        assert_eq!((fabric.check_safety(), fabric.check_liveness()), (Ok(()), Ok(())));
    }
}

/// One half was declared failed, its spine last. Then the controller of that half took over and
/// completed that failure: but the registers held for the spine bound the other half, which has
/// failed from there.
#[test]
fn registers_are_held_while_dependents_are_suspected() {
    let faults = vec![
        (409_757, Fault::Kill { node: 25 }),
        (195_867, Fault::Takeover { replica: 0 }),
        (10_000, Fault::CrashController),
        (0, Fault::Restart { node: 13 }),
    ];
    let frame_faults = FrameFaults { lost: 75, duplicated: 41, jitter_ns: 5_338 };
    let seed = 4_856_739_001_876_196_783;
    let scenario = Scenario { seed, shape: 0, flat: true, frame_faults, crash_after: None, faults };
    let fabric = run_scenario(&scenario);
    assert!(!is_inexact(&fabric));
    assert_eq!((fabric.check_safety(), fabric.check_liveness()), (Ok(()), Ok(())));
}

/// The active replica crashes, the other takes over, and the lease expires at once: the crashed one
/// does not win it, so the other continues.
#[test]
fn crashed_replica_wins_no_lease() {
    let faults = vec![
        (43_502, Fault::Kill { node: 55 }),
        (366_498, Fault::Takeover { replica: 1 }),
        (0, Fault::Takeover { replica: 0 }),
    ];
    let frame_faults = FrameFaults { lost: 0, duplicated: 0, jitter_ns: 0 };
    let scenario =
        Scenario { seed: 0, shape: 0, flat: false, frame_faults, crash_after: Some(46), faults };
    let fabric = run_scenario(&scenario);
    assert!(!is_inexact(&fabric));
    assert_eq!((fabric.check_safety(), fabric.check_liveness()), (Ok(()), Ok(())));
}

/// The only spine dies, so the fabric falls into two halves. The controller of one half declares
/// the other one failed and releases its links. A process that starts in the other half joins there
/// and then fails: no process of the first half has a path to it or can hold a message of it, so
/// its failure timestamp bounds none of them.
#[test]
fn process_without_a_path_bounds_no_receiver() {
    let faults = vec![
        (0, Fault::Kill { node: 55 }),
        (100_000, Fault::Restart { node: 48 }),
        (150_000, Fault::CrashController),
    ];
    let frame_faults = FrameFaults { lost: 0, duplicated: 0, jitter_ns: 0 };
    let scenario =
        Scenario { seed: 0, shape: 0, flat: false, frame_faults, crash_after: Some(10), faults };
    let fabric = run_scenario(&scenario);
    let late = Instance { address: process(2), incarnation: Incarnation(2) };
    assert!(fabric.welcome.contains(&late) && fabric.decided.contains_key(&late));
    assert!(!is_inexact(&fabric));
    assert_eq!((fabric.check_safety(), fabric.check_liveness()), (Ok(()), Ok(())));
}

/// A leaf restarts and its failure is resolved. The standby replica still knows the previous
/// incarnation when it takes over, and crashes at once: the next replica must not read from the
/// store that the previous incarnation is a member, because no node will ever report its end.
#[test]
fn takeover_records_no_resolved_switch() {
    let faults = vec![
        (0, Fault::Restart { node: 9 }),
        (66_000, Fault::CrashController),
        (0, Fault::CrashController),
        (0, Fault::Restart { node: 29 }),
    ];
    let frame_faults = FrameFaults { lost: 0, duplicated: 0, jitter_ns: 0 };
    let scenario =
        Scenario { seed: 0, shape: 2, flat: false, frame_faults, crash_after: None, faults };
    let fabric = run_scenario(&scenario);
    assert!(!is_inexact(&fabric));
    assert_eq!((fabric.check_safety(), fabric.check_liveness()), (Ok(()), Ok(())));
}
