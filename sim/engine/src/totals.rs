//! Totals over many seeds, as a whole and by kind of fault.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What a number of runs have checked and found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tally {
    /// Seeds that were run to their end.
    pub seeds: u64,
    /// Scheduled faults: of one kind, in the tally of a kind.
    pub faults: u64,
    /// Deliveries, each checked.
    pub deliveries: u64,
    /// Deliveries of a reliable service.
    pub reliable: u64,
    /// Violations of invariants, and panics of machines.
    pub violations: u64,
    /// Failures that were reported: incarnations that count as failed, or leaders that were
    /// replaced.
    pub failures: u64,
    /// Processor time, in us.
    pub processor_us: u64,
}

impl Tally {
    /// Adds the counts of other runs.
    pub fn add(&mut self, other: &Self) {
        self.seeds += other.seeds;
        self.faults += other.faults;
        self.deliveries += other.deliveries;
        self.reliable += other.reliable;
        self.violations += other.violations;
        self.failures += other.failures;
        self.processor_us += other.processor_us;
    }
}

/// Totals over many seeds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Totals {
    /// All seeds.
    pub all: Tally,
    /// The seeds that schedule a fault of a kind. A seed with faults of several kinds counts in
    /// each, so these tallies add up to more than all seeds.
    pub kinds: BTreeMap<String, Tally>,
}

impl Totals {
    /// Adds one seed, given the kinds of its scheduled faults, one for each fault.
    pub fn add_seed(
        &mut self,
        outcome: Tally,
        faults: impl IntoIterator<Item = &'static str>,
        processor_time: Duration,
    ) {
        let processor_us = processor_time.as_micros() as u64;
        let outcome = Tally { seeds: 1, faults: 0, processor_us, ..outcome };
        let mut by_kind = BTreeMap::<&str, u64>::new();
        for kind in faults {
            *by_kind.entry(kind).or_default() += 1;
        }
        self.all.add(&Tally { faults: by_kind.values().sum(), ..outcome });
        for (kind, faults) in by_kind {
            self.kinds.entry(kind.to_owned()).or_default().add(&Tally { faults, ..outcome });
        }
    }

    /// Adds the totals of other seeds.
    pub fn add(&mut self, other: &Self) {
        self.all.add(&other.all);
        for (kind, tally) in &other.kinds {
            self.kinds.entry(kind.clone()).or_default().add(tally);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(deliveries: u64) -> Tally {
        Tally { deliveries, violations: 1, ..Tally::default() }
    }

    #[test]
    fn a_seed_counts_once_in_each_of_its_kinds() {
        let mut totals = Totals::default();
        let time = Duration::from_micros(7);
        totals.add_seed(outcome(10), ["crash", "pause", "crash"], time);
        totals.add_seed(outcome(5), ["pause"], time);
        totals.add_seed(outcome(1), [], time);
        let all = Tally { seeds: 3, faults: 4, processor_us: 21, violations: 3, ..outcome(16) };
        assert_eq!(totals.all, all);
        let crash = Tally { seeds: 1, faults: 2, processor_us: 7, ..outcome(10) };
        let pause = Tally { seeds: 2, faults: 2, processor_us: 14, violations: 2, ..outcome(15) };
        assert_eq!(totals.kinds, [("crash".into(), crash), ("pause".into(), pause)].into());
    }

    #[test]
    fn totals_of_parts_add_up_to_those_of_all() {
        let seeds: [(u64, &[&str]); 3] = [(3, &["crash"]), (4, &["pause", "crash"]), (5, &[])];
        let totals = |seeds: &[(u64, &'static [&'static str])]| {
            let mut totals = Totals::default();
            for (deliveries, faults) in seeds {
                let faults = faults.iter().copied();
                totals.add_seed(outcome(*deliveries), faults, Duration::from_micros(*deliveries));
            }
            totals
        };
        let mut sum = totals(&seeds[..1]);
        sum.add(&totals(&seeds[1..]));
        assert_eq!(sum, totals(&seeds));
    }
}
