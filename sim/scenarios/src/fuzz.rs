//! Many seeds, one after the other on every core.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use onepipe_sim_check::Rule;
use onepipe_sim_engine::Seeds;

use crate::{Mishap, Outcome, Report, Swarm};

/// Runs that may be spent on making the first failing seed smaller.
const SHRINK_ATTEMPTS: u32 = 100;

/// Which seeds, and how many at a time.
#[derive(Clone, Copy, Debug)]
pub struct FuzzOptions {
    /// The first seed.
    pub first: u64,
    /// How many.
    pub seeds: u64,
    /// How many at a time.
    pub jobs: usize,
    /// End when one has failed.
    pub stops_at_failure: bool,
}

/// What many seeds add up to.
#[derive(Clone, Debug, Default)]
pub struct FuzzReport {
    /// Seeds that were run to their end.
    pub seeds: u64,
    /// Events of their networks.
    pub events: u64,
    /// Messages delivered, each checked.
    pub delivered: u64,
    /// Of these, messages of the reliable service.
    pub reliable: u64,
    /// Failures of lives that processes were told of.
    pub failures: u64,
    /// Of these, failures whose timestamp could not be known for sure.
    pub inexact: u64,
    /// Scatterings torn lawfully, by partitions that no controller can mend.
    pub torn: u64,
    /// How often a controller became active.
    pub epochs: u64,
    /// Faults, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Seeds that broke each rule.
    pub broken: BTreeMap<Rule, u64>,
    /// Seeds in which a machine panicked.
    pub panics: u64,
    /// Seeds that failed, ascending; the first ones.
    pub failing: Vec<u64>,
    /// How many seeds failed.
    pub failed: u64,
}

/// A failing seed, made small.
#[derive(Clone, Debug)]
pub struct Failing {
    /// The seed.
    pub seed: u64,
    /// What was wrong.
    pub complaints: Vec<String>,
    /// How many mishaps it drew.
    pub mishaps: usize,
    /// Those that it takes: us after the load has started, and what.
    pub timeline: Vec<(u64, Mishap)>,
    /// Who must be gone for good after healing, if anybody.
    pub missing: Option<u32>,
}

/// How many failing seeds are listed.
const LISTED_MAX: usize = 100;

impl FuzzReport {
    fn add(&mut self, seed: u64, swarm: &Swarm, outcome: &Outcome) {
        self.seeds += 1;
        for (_, mishap) in &swarm.timeline {
            if let Some(name) = mishap.name() {
                *self.faults.entry(name).or_default() += 1;
            }
        }
        if swarm.missing.is_some() {
            *self.faults.entry("process gone for good").or_default() += 1;
        }
        match outcome {
            Outcome::Report(report) => self.add_report(report),
            Outcome::Panic(_) => self.panics += 1,
        }
        if !outcome.is_right() {
            self.failed += 1;
            let place = self.failing.partition_point(|failing| *failing < seed);
            self.failing.insert(place, seed);
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
        self.epochs += report.court.epochs;
        let network = &report.network;
        for (name, count) in [
            ("frame lost", network.drops.lost),
            ("frame changed", network.corrupted),
            ("frame duplicated", network.duplicated),
            ("frame overtaken", network.delayed),
        ] {
            *self.faults.entry(name).or_default() += count;
        }
        for rule in report.violations_by_rule.keys() {
            *self.broken.entry(*rule).or_default() += 1;
        }
    }
}

/// Runs seeds until all are done or `stops`; `progress` is told how many are done now and then,
/// and how many of them have failed. Panics of machines are caught; their hook is the caller's to
/// silence.
pub fn fuzz(
    options: &FuzzOptions,
    stops: &AtomicBool,
    progress: impl Fn(u64, u64) + Sync,
) -> FuzzReport {
    let mut report = FuzzReport::default();
    let seeds = Seeds { first: options.first, count: options.seeds, jobs: options.jobs };
    let attempt = |seed| {
        let swarm = Swarm::draw(seed);
        let outcome = swarm.attempt();
        (swarm, outcome)
    };
    seeds.for_each(stops, attempt, |seed, (swarm, outcome)| {
        report.add(seed, &swarm, &outcome);
        progress(report.seeds, report.failed);
        if report.failed > 0 && options.stops_at_failure {
            stops.store(true, Ordering::Relaxed);
        }
    });
    report
}

/// Makes a failing seed small; `None` when it does not fail.
pub fn shrink(seed: u64) -> Option<Failing> {
    let swarm = Swarm::draw(seed);
    let outcome = swarm.attempt();
    if outcome.is_right() {
        return None;
    }
    let small = swarm.shrunk(&outcome, SHRINK_ATTEMPTS);
    let complaints = small.attempt().complaints();
    let mishaps = swarm.timeline.len() + usize::from(swarm.missing.is_some());
    Some(Failing { seed, complaints, mishaps, timeline: small.timeline, missing: small.missing })
}
