//! Restricted atomicity: every reliable scattering is in the logs of all who survive, or of none.
//!
//! Every scattering of a demo goes to everybody. So the logs of the reliable stream must be the
//! same at all survivors, window by window, in what they hold and in the order. What a victim had
//! delivered before it was killed must be in them too: it was below the barrier of commits, which
//! nothing passes that is not in everybody's buffer.

use std::collections::BTreeMap;
use std::fmt;

use super::log::Window;
use super::reliable::{Failure, ReliableSample};

/// How many violations are kept as text.
const TEXTS_MAX: usize = 10;

/// How the reliable streams contradict each other, or what was promised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Breach {
    /// A scattering is in one log and not in the other, or they are not in the same order.
    Differ { window: u64, one: usize, other: usize },
    /// A process did not come to the end of a window that others have closed.
    Unfinished { window: u64, at: usize },
    /// Two processes were told different timestamps of one failure, or one was not told.
    Failure { process: usize, one: usize, other: usize },
    /// Messages of a process that failed were delivered though they lie at or above its failure.
    Beyond { at: usize, messages: u64 },
    /// Scatterings of a process had neither been delivered nor reported at the end, or both.
    Fates { at: usize, submitted: u64, delivered: u64, recalled: u64 },
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Differ { window, one, other } => write!(
                f,
                "processes {one} and {other} delivered different reliable messages, or in \
                 different orders (window {window})"
            ),
            Self::Unfinished { window, at } => {
                write!(f, "process {at} did not come to the end of reliable window {window}")
            }
            Self::Failure { process, one, other } => write!(
                f,
                "processes {one} and {other} were not told the same of the failure of process \
                 {process}"
            ),
            Self::Beyond { at, messages } => write!(
                f,
                "process {at} delivered {messages} reliable messages of a failed process at or \
                 above its failure timestamp"
            ),
            Self::Fates { at, submitted, delivered, recalled } => write!(
                f,
                "process {at} submitted {submitted} reliable scatterings, but {delivered} were \
                 delivered and {recalled} reported as delivered to nobody"
            ),
        }
    }
}

/// What the comparison found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finding {
    /// Reliable messages that the comparison covered, counted at each receiver.
    pub messages: u64,
    /// Windows compared.
    pub windows: u64,
    /// Reliable scatterings of survivors that were delivered to nobody, as their senders were told.
    pub recalled: u64,
    /// Failures that survivors were told of, counted at each.
    pub failures: u64,
    /// Contradictions.
    pub breaches: u64,
    /// The first of them.
    pub first: Vec<Breach>,
}

#[derive(Clone, Debug, Default)]
struct Witness {
    windows: BTreeMap<u64, Window>,
    closed_below: u64,
    failures: Vec<Failure>,
    beyond: u64,
    own: [u64; 3],
    is_dead: bool,
}

/// Collects the reliable logs of all processes and compares them.
#[derive(Clone, Debug)]
pub struct Atomicity {
    witnesses: Vec<Witness>,
    finding: Finding,
}

impl Atomicity {
    /// Of so many processes.
    pub fn new(processes: usize) -> Self {
        Self { witnesses: vec![Witness::default(); processes], finding: Finding::default() }
    }

    /// Takes a further part of a process's log.
    pub fn hear(&mut self, process: usize, sample: ReliableSample) {
        let witness = &mut self.witnesses[process];
        witness.windows.extend(sample.windows.into_iter().map(|window| (window.number, window)));
        witness.closed_below = witness.closed_below.max(sample.closed_below);
        witness.failures = sample.failures;
        witness.beyond = sample.beyond;
        witness.own = sample.own;
    }

    /// A process was killed.
    pub fn on_killed(&mut self, process: usize) {
        self.witnesses[process].is_dead = true;
    }

    /// Compares and forgets the windows that all who live have closed.
    pub fn settle(&mut self) {
        let living = self.witnesses.iter().filter(|witness| !witness.is_dead);
        let closed_below = living.map(|witness| witness.closed_below).min().unwrap_or(0);
        self.compare_below(closed_below);
    }

    /// Compares all that is left.
    pub fn finish(mut self) -> Finding {
        self.compare_below(u64::MAX);
        self.compare_failures();
        for at in 0..self.witnesses.len() {
            let Witness { own, beyond, is_dead, ref failures, .. } = self.witnesses[at];
            let [submitted, delivered, recalled] = own;
            let told = failures.len() as u64;
            if beyond > 0 {
                self.breach(Breach::Beyond { at, messages: beyond });
            }
            if is_dead {
                continue;
            }
            self.finding.failures += told;
            self.finding.recalled += recalled;
            if submitted != delivered + recalled {
                self.breach(Breach::Fates { at, submitted, delivered, recalled });
            }
        }
        self.finding
    }

    /// The failures of `process`, as each survivor was told: when, in ns of the starter's clock.
    pub fn told_ns(&self, process: usize) -> impl Iterator<Item = u64> + '_ {
        let living = self.witnesses.iter().filter(|witness| !witness.is_dead);
        let failures = living.flat_map(|witness| &witness.failures);
        let of_it = failures.filter(move |failure| failure.process as usize == process);
        of_it.map(|failure| failure.told_ns)
    }

    fn compare_below(&mut self, limit: u64) {
        let mut numbers: Vec<u64> = Vec::new();
        for witness in &self.witnesses {
            numbers.extend(witness.windows.range(..limit).map(|(number, _)| *number));
        }
        numbers.sort_unstable();
        numbers.dedup();
        for number in numbers {
            self.compare(number);
            for witness in &mut self.witnesses {
                witness.windows.remove(&number);
            }
        }
    }

    fn compare(&mut self, window: u64) {
        let mut one: Option<usize> = None;
        self.finding.windows += 1;
        for at in 0..self.witnesses.len() {
            let witness = &self.witnesses[at];
            if witness.closed_below <= window {
                // Somebody who was killed did not come to the end of everything.
                if !witness.is_dead {
                    self.breach(Breach::Unfinished { window, at });
                }
                continue;
            }
            let log = witness.windows.get(&window);
            let counts = log.iter().flat_map(|log| &log.senders).map(|tally| tally.count);
            self.finding.messages += counts.sum::<u64>();
            match one {
                None => one = Some(at),
                Some(one) if self.witnesses[one].windows.get(&window) == log => {}
                Some(one) => self.breach(Breach::Differ { window, one, other: at }),
            }
        }
    }

    fn compare_failures(&mut self) {
        let count = self.witnesses.len();
        let living: Vec<usize> = (0..count).filter(|at| !self.witnesses[*at].is_dead).collect();
        let Some(&one) = living.first() else { return };
        for process in 0..count {
            let told = |at: usize| -> Vec<u64> {
                let failures = self.witnesses[at].failures.iter();
                let of_it = failures.filter(|failure| failure.process as usize == process);
                of_it.map(|failure| failure.failed_ns).collect()
            };
            let expected = told(one);
            let others = living.iter().filter(|at| told(**at) != expected);
            let differing: Vec<usize> = others.copied().collect();
            for other in differing {
                self.breach(Breach::Failure { process, one, other });
            }
        }
    }

    fn breach(&mut self, breach: Breach) {
        self.finding.breaches += 1;
        if self.finding.first.len() < TEXTS_MAX {
            self.finding.first.push(breach);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::log::Tally;
    use super::*;

    fn sample(chain: u64, closed_below: u64) -> ReliableSample {
        let senders = vec![Tally { count: 2, sum: 7 }];
        let windows = vec![Window { number: 4, chain, senders }];
        ReliableSample { windows, closed_below, own: [2, 1, 1], ..ReliableSample::default() }
    }

    fn finding(samples: [ReliableSample; 3], dead: Option<usize>) -> Finding {
        let mut atomicity = Atomicity::new(3);
        samples.into_iter().enumerate().for_each(|(at, sample)| atomicity.hear(at, sample));
        dead.into_iter().for_each(|process| atomicity.on_killed(process));
        atomicity.settle();
        atomicity.finish()
    }

    #[test]
    fn equal_logs_agree_and_one_that_differs_is_found() {
        let good = finding([sample(1, 5), sample(1, 5), sample(1, 5)], None);
        assert_eq!((good.breaches, good.messages, good.windows, good.recalled), (0, 6, 1, 3));
        let bad = finding([sample(1, 5), sample(1, 5), sample(2, 5)], None);
        assert_eq!(bad.first, [Breach::Differ { window: 4, one: 0, other: 2 }]);
        let none = ReliableSample { windows: vec![], ..sample(1, 5) };
        let bad = finding([sample(1, 5), none, sample(1, 5)], None);
        assert_eq!(bad.first, [Breach::Differ { window: 4, one: 0, other: 1 }]);
    }

    #[test]
    fn a_victim_answers_for_what_it_had_closed_and_for_no_more() {
        let early = ReliableSample { windows: vec![], ..sample(1, 4) };
        assert_eq!(finding([sample(1, 5), sample(1, 5), early.clone()], Some(2)).breaches, 0);
        let late = finding([sample(1, 5), sample(1, 5), early], None);
        assert_eq!(late.first, [Breach::Unfinished { window: 4, at: 2 }]);
        let bad = finding([sample(1, 5), sample(1, 5), sample(2, 5)], Some(2));
        assert_eq!(bad.first, [Breach::Differ { window: 4, one: 0, other: 2 }]);
    }

    #[test]
    fn failures_must_be_told_alike_and_bound_what_is_delivered() {
        let told = |failed_ns| {
            let failures = vec![Failure { process: 2, failed_ns, told_ns: 1 }];
            ReliableSample { failures, ..sample(1, 5) }
        };
        assert_eq!(finding([told(9), told(9), sample(1, 5)], Some(2)).breaches, 0);
        let bad = finding([told(9), told(8), sample(1, 5)], Some(2));
        assert_eq!(bad.first, [Breach::Failure { process: 2, one: 0, other: 1 }]);
        let silent = finding([told(9), sample(1, 5), sample(1, 5)], Some(2));
        assert_eq!(silent.first, [Breach::Failure { process: 2, one: 0, other: 1 }]);
        let beyond = ReliableSample { beyond: 3, ..told(9) };
        let bad = finding([told(9), beyond, sample(1, 5)], Some(2));
        assert_eq!(bad.first, [Breach::Beyond { at: 1, messages: 3 }]);
    }

    #[test]
    fn every_scattering_has_one_fate() {
        let open = ReliableSample { own: [3, 1, 1], ..sample(1, 5) };
        let bad = finding([sample(1, 5), open, sample(1, 5)], None);
        let fates = Breach::Fates { at: 1, submitted: 3, delivered: 1, recalled: 1 };
        assert_eq!(bad.first, [fates]);
    }
}
