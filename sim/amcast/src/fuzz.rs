//! Runs many seeds on all cores.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onepipe_sim_engine::{Seeds, Tally, Totals};

use crate::env::Quorums;
use crate::swarm::{Outcome, Swarm};

/// Maximum number of failing seeds that are listed.
const LISTED_MAX: usize = 100;

/// Aggregated results of many seeds.
#[derive(Clone, Debug, Default)]
pub struct FuzzReport {
    /// Seeds completed.
    pub seeds: u64,
    /// Network events.
    pub events: u64,
    /// Messages sent.
    pub sent: u64,
    /// Deliveries, each checked.
    pub delivered: u64,
    /// Elections won.
    pub elections: u64,
    /// Messages refused with `Busy`.
    pub busy: u64,
    /// Seeds whose fabric was partitioned so that no part could continue. Only safety was checked
    /// for these.
    pub partitioned: u64,
    /// Faults by kind, and their effects.
    pub faults: BTreeMap<&'static str, u64>,
    /// Seeds in which a machine panicked.
    pub panics: u64,
    /// Failing seeds in ascending order, up to a limit.
    pub failing: Vec<u64>,
    /// Number of failing seeds.
    pub failed: u64,
    /// What is added up over runs of the same build, by kind of fault.
    pub totals: Totals,
}

impl FuzzReport {
    fn add(&mut self, seed: u64, swarm: &Swarm, outcome: &Outcome, spent: Duration) {
        let names = || swarm.timeline.iter().filter_map(|(_, event)| event.name());
        let tally = Tally {
            deliveries: outcome.delivered,
            reliable: outcome.delivered,
            violations: outcome.violations.len() as u64,
            failures: outcome.elections,
            ..Tally::default()
        };
        self.totals.add_seed(tally, names(), spent);
        self.seeds += 1;
        self.events += outcome.events;
        self.sent += outcome.sent;
        self.delivered += outcome.delivered;
        self.elections += outcome.elections;
        self.busy += outcome.busy;
        self.partitioned += u64::from(outcome.is_partitioned);
        self.panics += u64::from(outcome.is_panic);
        let mut count = |name, count| *self.faults.entry(name).or_default() += count;
        names().for_each(|name| count(name, 1));
        let kinds = ["frame lost", "frame corrupted", "frame duplicated", "frame delayed"];
        kinds.into_iter().zip(outcome.frames).for_each(|(name, frames)| count(name, frames));
        let Quorums { leaders, followers, changed, lost, split_brain } = outcome.quorums;
        count("leader lost", leaders);
        count("follower lost", followers);
        count("quorum changed", changed);
        count("quorum lost", lost);
        count("two leaders seen", split_brain);
        if !outcome.violations.is_empty() {
            self.failed += 1;
            let index = self.failing.partition_point(|failing| *failing < seed);
            self.failing.insert(index, seed);
            self.failing.truncate(LISTED_MAX);
        }
    }
}

/// Runs seeds until all are done or `stops` is set; with `stops_at_failure` also until one has
/// failed. Calls `progress` with the number of seeds that are done and that have failed.
/// `processor_time` returns that of the calling thread. Panics of machines are caught; the caller
/// may silence the panic hook.
pub fn fuzz(
    seeds: &Seeds,
    stops: &AtomicBool,
    stops_at_failure: bool,
    processor_time: fn() -> Duration,
    progress: impl Fn(u64, u64) + Sync + Send,
) -> FuzzReport {
    let mut report = FuzzReport::default();
    let attempt = |seed| {
        let began = processor_time();
        let swarm = Swarm::draw(seed);
        let outcome = swarm.attempt();
        (swarm, outcome, processor_time().saturating_sub(began))
    };
    seeds.for_each(stops, attempt, |seed, (swarm, outcome, spent)| {
        report.add(seed, &swarm, &outcome, spent);
        progress(report.seeds, report.failed);
        if report.failed > 0 && stops_at_failure {
            stops.store(true, Ordering::Relaxed);
        }
    });
    report
}
