//! Overlay links over a bad network: messages take one of several paths with different delays, and
//! are lost, duplicated and reordered; the tree of aggregators loses and reorders as well.
//! Processes with skewed clocks join while others send. The guarantees of the reliable service must
//! hold (docs/design/overlay.md, "Why is it exact?").

mod world;

use std::collections::{BTreeMap, BTreeSet};

use onepipe_wire::Service;
use world::{Said, World};

/// Time in which everything is sent, and time for retransmissions afterwards, in ns.
const TALK_NS: u64 = 12_000_000;
const SETTLE_NS: u64 = 25_000_000;

/// Outcomes of the scatterings of one run.
#[derive(Debug, Default)]
struct Verdicts {
    delivered: usize,
    /// Reliable scatterings that were recalled, because a receiver refused one of their messages.
    recalled: usize,
    lost: usize,
    /// Messages without a known outcome.
    open: usize,
    /// Reliable scatterings that only some of their receivers delivered.
    torn: usize,
}

/// Receivers of a scattering's messages, and the timestamps of the deliveries.
type Delivered = (BTreeSet<(u32, u16)>, BTreeSet<u64>);

fn play(seed: u64, is_rash: bool) -> (Verdicts, World) {
    let mut world = World::new(seed, is_rash);
    world.run(TALK_NS, true);
    world.run(TALK_NS + SETTLE_NS, false);
    let verdicts = judge(seed, &world);
    (verdicts, world)
}

fn judge(seed: u64, world: &World) -> Verdicts {
    let mut verdicts = Verdicts::default();
    let mut delivered: BTreeMap<(Service, u32), Delivered> = BTreeMap::new();
    for (process, log) in &world.logs {
        for service in [Service::BestEffort, Service::Reliable] {
            let of_service: Vec<_> = log.iter().filter(|got| got.service == service).collect();
            for pair in of_service.windows(2) {
                assert!(pair[0].key < pair[1].key, "seed {seed}: order at process {process}");
            }
            for got in of_service {
                let (by, at) = delivered.entry((service, got.number)).or_default();
                assert!(by.insert((*process, got.key.2)), "seed {seed}: twice at {process}");
                at.insert(got.key.0);
            }
        }
    }
    let nobody = Delivered::default();
    for Said { service, number, messages, failed } in world.said.values() {
        let (by, at) = delivered.get(&(*service, *number)).unwrap_or(&nobody);
        assert!(at.len() <= 1, "seed {seed}: one timestamp a scattering");
        let failed: BTreeSet<_> = failed.iter().copied().collect();
        verdicts.open += messages.len() - by.union(&failed).count();
        verdicts.delivered += by.len();
        match (service, by.len(), failed.len()) {
            (Service::BestEffort, _, lost) => {
                assert!(by.is_disjoint(&failed), "seed {seed}: delivered and reported as lost");
                verdicts.lost += lost;
            }
            (Service::Reliable, _, 0) => {}
            (Service::Reliable, 0, _) => verdicts.recalled += 1,
            (Service::Reliable, ..) => verdicts.torn += 1,
        }
    }
    verdicts
}

#[test]
fn reliable_scatterings_keep_order_and_are_whole_whatever_the_network_does() {
    let (mut delivered, mut lost, mut overtaken) = (0, 0, 0);
    for seed in 0..4 {
        let (verdicts, world) = play(seed, false);
        assert_eq!((verdicts.torn, verdicts.open), (0, 0), "seed {seed}: {verdicts:?}");
        delivered += verdicts.delivered;
        lost += verdicts.lost;
        overtaken += world.overtaken;
    }
    // The network was as bad as intended, and messages were delivered nevertheless.
    assert!(delivered > 10_000 && lost > 500, "{delivered} {lost}");
    assert!(overtaken > 4_000, "{overtaken}");
}

/// The verification can fail: a process that commits before all acknowledgements breaks the
/// atomicity of its scatterings.
#[test]
fn a_process_that_promises_too_much_is_found_out() {
    let torn: Vec<_> = (0..4).map(|seed| play(seed, true).0.torn).collect();
    assert!(torn.iter().any(|torn| *torn > 0), "{torn:?}");
}
