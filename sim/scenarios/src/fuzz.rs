//! Runs many seeds in parallel.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onepipe_sim_check::Rule;
use onepipe_sim_engine::{Seeds, Tally, Totals};

use crate::{FaultEvent, Report, RunOutcome, Swarm};

/// Limit on the runs that are spent on shrinking a failing seed.
const SHRINK_ATTEMPTS: u32 = 100;

/// Seeds to run.
#[derive(Clone, Copy, Debug)]
pub struct FuzzOptions {
    /// First seed.
    pub first: u64,
    /// Number of seeds.
    pub seeds: u64,
    /// Number of seeds that run in parallel.
    pub jobs: usize,
    /// Whether to stop at the first failing seed.
    pub stops_at_failure: bool,
    /// Returns the processor time of the calling thread.
    pub processor_time: fn() -> Duration,
}

/// Totals over many seeds.
#[derive(Clone, Debug, Default)]
pub struct FuzzReport {
    /// Seeds that were run to their end.
    pub seeds: u64,
    /// Network events.
    pub events: u64,
    /// Delivered and checked messages.
    pub delivered: u64,
    /// Of these, messages of the reliable service.
    pub reliable: u64,
    /// Failed incarnations that processes were notified of.
    pub failures: u64,
    /// Of these, incarnations whose failure timestamp was decided without all registers.
    pub inexact: u64,
    /// Scatterings that only a part of their correct receivers delivered. Allowed after partitions
    /// that no controller can repair.
    pub torn: u64,
    /// Epochs: how often a controller became active.
    pub epochs: u64,
    /// Injected faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Number of seeds that violated each rule.
    pub seeds_by_rule: BTreeMap<Rule, u64>,
    /// Number of seeds in which a machine panicked.
    pub panics: u64,
    /// The lowest failing seeds, ascending.
    pub failing: Vec<u64>,
    /// Number of failing seeds.
    pub failing_count: u64,
    /// What is added up over runs of the same build, by kind of fault.
    pub totals: Totals,
}

/// A failing seed after shrinking.
#[derive(Clone, Debug)]
pub struct FailingSeed {
    /// The seed.
    pub seed: u64,
    /// Violations as text.
    pub violations: Vec<String>,
    /// Number of faults that the seed drew.
    pub faults: usize,
    /// Minimal timeline that still fails: us after the start of the load, and fault.
    pub timeline: Vec<(u64, FaultEvent)>,
    /// Process that must be removed after healing for the seed to fail, if any.
    pub removed: Option<u32>,
}

/// Limit on the listed failing seeds.
const LISTED_MAX: usize = 100;

impl FuzzReport {
    fn add(&mut self, seed: u64, swarm: &Swarm, outcome: &RunOutcome, spent: Duration) {
        self.seeds += 1;
        for name in swarm.fault_names() {
            *self.faults.entry(name).or_default() += 1;
        }
        self.totals.add_seed(tally(outcome), swarm.fault_names(), spent);
        match outcome {
            RunOutcome::Report(report) => self.add_report(report),
            RunOutcome::Panic(_) => self.panics += 1,
        }
        if !outcome.is_ok() {
            self.failing_count += 1;
            let position = self.failing.partition_point(|listed| *listed < seed);
            self.failing.insert(position, seed);
            self.failing.truncate(LISTED_MAX);
        }
    }

    fn add_report(&mut self, report: &Report) {
        self.events += report.network.events;
        self.delivered += report.messages.delivered;
        self.reliable += report.messages.reliable;
        self.failures += report.messages.failures;
        self.inexact += report.messages.inexact;
        self.torn += report.messages.torn;
        self.epochs += report.control_plane.epochs;
        let network = &report.network;
        for (name, count) in [
            ("frame lost", network.drops.lost),
            ("frame corrupted", network.corrupted),
            ("frame duplicated", network.duplicated),
            ("frame delayed", network.delayed),
        ] {
            *self.faults.entry(name).or_default() += count;
        }
        for rule in report.violations_by_rule.keys() {
            *self.seeds_by_rule.entry(*rule).or_default() += 1;
        }
    }
}

/// Returns the counts of one run.
fn tally(outcome: &RunOutcome) -> Tally {
    match outcome {
        RunOutcome::Report(report) => Tally {
            deliveries: report.messages.delivered,
            reliable: report.messages.reliable,
            violations: report.violations,
            failures: report.messages.failures,
            ..Tally::default()
        },
        RunOutcome::Panic(_) => Tally { violations: 1, ..Tally::default() },
    }
}

/// Runs seeds until all have run or `stops` is set. Calls `progress` repeatedly with the number of
/// finished seeds and of failed ones. Panics of machines are caught; silencing the panic hook is up
/// to the caller.
pub fn fuzz(
    options: &FuzzOptions,
    stops: &AtomicBool,
    progress: impl Fn(u64, u64) + Sync,
) -> FuzzReport {
    let mut report = FuzzReport::default();
    let seeds = Seeds { first: options.first, count: options.seeds, jobs: options.jobs };
    let attempt = |seed| {
        let began = (options.processor_time)();
        let swarm = Swarm::draw(seed);
        let outcome = swarm.attempt();
        (swarm, outcome, (options.processor_time)().saturating_sub(began))
    };
    seeds.for_each(stops, attempt, |seed, (swarm, outcome, spent)| {
        report.add(seed, &swarm, &outcome, spent);
        progress(report.seeds, report.failing_count);
        if report.failing_count > 0 && options.stops_at_failure {
            stops.store(true, Ordering::Relaxed);
        }
    });
    report
}

/// Shrinks a failing seed. Returns `None` if the seed passes.
pub fn shrink(seed: u64) -> Option<FailingSeed> {
    let swarm = Swarm::draw(seed);
    let outcome = swarm.attempt();
    if outcome.is_ok() {
        return None;
    }
    let small = swarm.shrunk(&outcome, SHRINK_ATTEMPTS);
    let violations = small.attempt().violations();
    let faults = swarm.timeline.len() + usize::from(swarm.removed.is_some());
    Some(FailingSeed { seed, violations, faults, timeline: small.timeline, removed: small.removed })
}
