//! Overlay links over a bad network: messages take one of several paths with different delays, and
//! are lost, duplicated and reordered; the tree of aggregators loses and reorders as well.
//! Processes with skewed clocks join while others send. The guarantees of the reliable service must
//! hold (docs/design/overlay.md, "Why is it exact?").

mod network;

use std::collections::{BTreeMap, BTreeSet};

use network::{Sent, TestNet};
use onepipe_wire::Service;

/// Time in which everything is sent, and time for retransmissions afterwards, in ns.
const SEND_NS: u64 = 12_000_000;
const DRAIN_NS: u64 = 25_000_000;

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

fn run_seed(seed: u64, is_premature: bool) -> (Verdicts, TestNet) {
    let mut network = TestNet::new(seed, is_premature);
    network.run(SEND_NS, true);
    network.run(SEND_NS + DRAIN_NS, false);
    let verdicts = verify(seed, &network);
    (verdicts, network)
}

fn verify(seed: u64, network: &TestNet) -> Verdicts {
    let mut verdicts = Verdicts::default();
    let mut delivered: BTreeMap<(Service, u32), Delivered> = BTreeMap::new();
    for (process, log) in &network.logs {
        for service in [Service::BestEffort, Service::Reliable] {
            let of_service: Vec<_> =
                log.iter().filter(|received_message| received_message.service == service).collect();
            for pair in of_service.windows(2) {
                assert!(pair[0].key < pair[1].key, "seed {seed}: order at process {process}");
            }
            for received_message in of_service {
                let (by, at) = delivered.entry((service, received_message.number)).or_default();
                assert!(
                    by.insert((*process, received_message.key.2)),
                    "seed {seed}: twice at {process}"
                );
                at.insert(received_message.key.0);
            }
        }
    }
    let nobody = Delivered::default();
    for Sent { service, number, messages, failed } in network.sent_scatterings.values() {
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
fn reliable_scatterings_stay_ordered_and_atomic() {
    let (mut delivered, mut lost, mut overtaken) = (0, 0, 0);
    for seed in 0..4 {
        let (verdicts, network) = run_seed(seed, false);
        assert_eq!((verdicts.torn, verdicts.open), (0, 0), "seed {seed}: {verdicts:?}");
        delivered += verdicts.delivered;
        lost += verdicts.lost;
        overtaken += network.overtaken;
    }
    // The network was as bad as intended, and messages were delivered nevertheless.
    assert!(delivered > 10_000 && lost > 500, "{delivered} {lost}");
    assert!(overtaken > 4_000, "{overtaken}");
}

/// The verification can fail: a process that commits before all acknowledgements breaks the
/// atomicity of its scatterings.
#[test]
fn detects_premature_commits() {
    let torn: Vec<_> = (0..4).map(|seed| run_seed(seed, true).0.torn).collect();
    assert!(torn.iter().any(|torn| *torn > 0), "{torn:?}");
}
