//! Checks restricted atomicity: all survivors deliver a reliable scattering, or none does.
//!
//! Every scattering of a demo goes to all processes, so the logs of the reliable stream must be the
//! same at all survivors, window by window, in contents and in order. What a victim delivered
//! before it was killed must be in them too: it was below the commit barrier, which passes nothing
//! that is not in every receiver's buffer.

use std::collections::BTreeMap;
use std::fmt;

use super::log::Window;
use super::reliable::{Failure, ReliableSample};

/// Number of violations that are kept as text.
const TEXTS_MAX: usize = 10;

/// A contradiction between reliable streams, or with a guarantee.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AtomicityViolation {
    /// A scattering is in one log and not in the other, or the orders differ.
    Differ { window: u64, one: usize, other: usize },
    /// A process did not complete a window that others have closed.
    Unfinished { window: u64, at: usize },
    /// Two processes got different timestamps of a failure, or one was not notified.
    Failure { process: usize, one: usize, other: usize },
    /// Messages of a failed process were delivered at or above its failure timestamp.
    AfterFailure { at: usize, messages: u64 },
    /// Scatterings of a process were neither delivered nor recalled at the end, or both.
    Unaccounted { at: usize, submitted: u64, delivered: u64, recalled: u64 },
}

impl fmt::Display for AtomicityViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Differ { window, one, other } => write!(
                f,
                "processes {one} and {other} delivered different reliable messages, or in \
                 different orders (window {window})"
            ),
            Self::Unfinished { window, at } => {
                write!(f, "process {at} did not complete reliable window {window}")
            }
            Self::Failure { process, one, other } => write!(
                f,
                "processes {one} and {other} got different reports of the failure of process \
                 {process}"
            ),
            Self::AfterFailure { at, messages } => write!(
                f,
                "process {at} delivered {messages} reliable messages of a failed process at or \
                 above its failure timestamp"
            ),
            Self::Unaccounted { at, submitted, delivered, recalled } => write!(
                f,
                "process {at} submitted {submitted} reliable scatterings, but {delivered} were \
                 delivered and {recalled} reported as recalled"
            ),
        }
    }
}

/// Result of the comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AtomicityReport {
    /// Reliable messages compared, counted at each receiver.
    pub messages: u64,
    /// Windows compared.
    pub windows: u64,
    /// Reliable scatterings of survivors that were reported as recalled.
    pub recalled: u64,
    /// Failures reported to survivors, counted at each.
    pub failures: u64,
    /// Number of violations.
    pub violations: u64,
    /// The first violations.
    pub first: Vec<AtomicityViolation>,
}

#[derive(Clone, Debug, Default)]
struct ProcessLog {
    windows: BTreeMap<u64, Window>,
    closed_below: u64,
    failures: Vec<Failure>,
    after_failure: u64,
    /// Its own scatterings: submitted, delivered to itself, recalled.
    own: [u64; 3],
    is_dead: bool,
}

/// Collects the reliable logs of all processes and compares them.
#[derive(Clone, Debug)]
pub struct AtomicityChecker {
    process_logs: Vec<ProcessLog>,
    report: AtomicityReport,
}

impl AtomicityChecker {
    /// Creates a checker for `processes` processes.
    pub fn new(processes: usize) -> Self {
        Self {
            process_logs: vec![ProcessLog::default(); processes],
            report: AtomicityReport::default(),
        }
    }

    /// Adds a part of a process's log.
    pub fn add(&mut self, process: usize, sample: ReliableSample) {
        let process_log = &mut self.process_logs[process];
        process_log
            .windows
            .extend(sample.windows.into_iter().map(|window| (window.number, window)));
        process_log.closed_below = process_log.closed_below.max(sample.closed_below);
        process_log.failures = sample.failures;
        process_log.after_failure = sample.after_failure;
        process_log.own = sample.own;
    }

    /// Records that a process was killed.
    pub fn on_killed(&mut self, process: usize) {
        self.process_logs[process].is_dead = true;
    }

    /// Compares and drops the windows that all live processes have closed.
    pub fn advance(&mut self) {
        let survivors = self.process_logs.iter().filter(|process_log| !process_log.is_dead);
        let closed_below = survivors.map(|process_log| process_log.closed_below).min().unwrap_or(0);
        self.compare_below(closed_below);
    }

    /// Compares the remaining windows and returns the result.
    pub fn finish(mut self) -> AtomicityReport {
        self.compare_below(u64::MAX);
        self.compare_failures();
        for at in 0..self.process_logs.len() {
            let ProcessLog { own, after_failure, is_dead, ref failures, .. } =
                self.process_logs[at];
            let [submitted, delivered, recalled] = own;
            let reported = failures.len() as u64;
            if after_failure > 0 {
                self.record(AtomicityViolation::AfterFailure { at, messages: after_failure });
            }
            if is_dead {
                continue;
            }
            self.report.failures += reported;
            self.report.recalled += recalled;
            if submitted != delivered + recalled {
                self.record(AtomicityViolation::Unaccounted { at, submitted, delivered, recalled });
            }
        }
        self.report
    }

    /// Returns the times at which the survivors were notified of the failure of `process`, in ns of
    /// the parent's clock.
    pub fn notified_ns(&self, process: usize) -> impl Iterator<Item = u64> + '_ {
        let survivors = self.process_logs.iter().filter(|process_log| !process_log.is_dead);
        let failures = survivors.flat_map(|process_log| &process_log.failures);
        let of_process = failures.filter(move |failure| failure.process as usize == process);
        of_process.map(|failure| failure.notified_ns)
    }

    fn compare_below(&mut self, limit: u64) {
        let mut numbers: Vec<u64> = Vec::new();
        for process_log in &self.process_logs {
            numbers.extend(process_log.windows.range(..limit).map(|(number, _)| *number));
        }
        numbers.sort_unstable();
        numbers.dedup();
        for number in numbers {
            self.compare(number);
            for process_log in &mut self.process_logs {
                process_log.windows.remove(&number);
            }
        }
    }

    fn compare(&mut self, window: u64) {
        let mut one: Option<usize> = None;
        self.report.windows += 1;
        for at in 0..self.process_logs.len() {
            let process_log = &self.process_logs[at];
            if process_log.closed_below <= window {
                // A killed process did not close all windows.
                if !process_log.is_dead {
                    self.record(AtomicityViolation::Unfinished { window, at });
                }
                continue;
            }
            let log = process_log.windows.get(&window);
            let counts = log.iter().flat_map(|log| &log.senders).map(|sender_sum| sender_sum.count);
            self.report.messages += counts.sum::<u64>();
            match one {
                None => one = Some(at),
                Some(one) if self.process_logs[one].windows.get(&window) == log => {}
                Some(one) => self.record(AtomicityViolation::Differ { window, one, other: at }),
            }
        }
    }

    fn compare_failures(&mut self) {
        let count = self.process_logs.len();
        let survivors: Vec<usize> =
            (0..count).filter(|at| !self.process_logs[*at].is_dead).collect();
        let Some(&one) = survivors.first() else { return };
        for process in 0..count {
            let reported = |at: usize| -> Vec<u64> {
                let failures = self.process_logs[at].failures.iter();
                let of_process = failures.filter(|failure| failure.process as usize == process);
                of_process.map(|failure| failure.failed_ns).collect()
            };
            let expected = reported(one);
            let others = survivors.iter().filter(|at| reported(**at) != expected);
            let differing: Vec<usize> = others.copied().collect();
            for other in differing {
                self.record(AtomicityViolation::Failure { process, one, other });
            }
        }
    }

    fn record(&mut self, violation: AtomicityViolation) {
        self.report.violations += 1;
        if self.report.first.len() < TEXTS_MAX {
            self.report.first.push(violation);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::log::SenderSum;
    use super::*;

    fn sample(order_hash: u64, closed_below: u64) -> ReliableSample {
        let senders = vec![SenderSum { count: 2, sum: 7 }];
        let windows = vec![Window { number: 4, order_hash, senders }];
        ReliableSample { windows, closed_below, own: [2, 1, 1], ..ReliableSample::default() }
    }

    fn report(samples: [ReliableSample; 3], dead: Option<usize>) -> AtomicityReport {
        let mut atomicity = AtomicityChecker::new(3);
        samples.into_iter().enumerate().for_each(|(at, sample)| atomicity.add(at, sample));
        dead.into_iter().for_each(|process| atomicity.on_killed(process));
        atomicity.advance();
        atomicity.finish()
    }

    #[test]
    fn detects_log_that_differs() {
        let good = report([sample(1, 5), sample(1, 5), sample(1, 5)], None);
        assert_eq!((good.violations, good.messages, good.windows, good.recalled), (0, 6, 1, 3));
        let bad = report([sample(1, 5), sample(1, 5), sample(2, 5)], None);
        assert_eq!(bad.first, [AtomicityViolation::Differ { window: 4, one: 0, other: 2 }]);
        let none = ReliableSample { windows: vec![], ..sample(1, 5) };
        let bad = report([sample(1, 5), none, sample(1, 5)], None);
        assert_eq!(bad.first, [AtomicityViolation::Differ { window: 4, one: 0, other: 1 }]);
    }

    #[test]
    fn checks_closed_windows_of_killed_process() {
        let early = ReliableSample { windows: vec![], ..sample(1, 4) };
        assert_eq!(report([sample(1, 5), sample(1, 5), early.clone()], Some(2)).violations, 0);
        let late = report([sample(1, 5), sample(1, 5), early], None);
        assert_eq!(late.first, [AtomicityViolation::Unfinished { window: 4, at: 2 }]);
        let bad = report([sample(1, 5), sample(1, 5), sample(2, 5)], Some(2));
        assert_eq!(bad.first, [AtomicityViolation::Differ { window: 4, one: 0, other: 2 }]);
    }

    #[test]
    fn failure_reports_agree_and_bound_deliveries() {
        let reported = |failed_ns| {
            let failures = vec![Failure { process: 2, failed_ns, notified_ns: 1 }];
            ReliableSample { failures, ..sample(1, 5) }
        };
        assert_eq!(report([reported(9), reported(9), sample(1, 5)], Some(2)).violations, 0);
        let bad = report([reported(9), reported(8), sample(1, 5)], Some(2));
        assert_eq!(bad.first, [AtomicityViolation::Failure { process: 2, one: 0, other: 1 }]);
        let missing = report([reported(9), sample(1, 5), sample(1, 5)], Some(2));
        assert_eq!(missing.first, [AtomicityViolation::Failure { process: 2, one: 0, other: 1 }]);
        let after_failure = ReliableSample { after_failure: 3, ..reported(9) };
        let bad = report([reported(9), after_failure, sample(1, 5)], Some(2));
        assert_eq!(bad.first, [AtomicityViolation::AfterFailure { at: 1, messages: 3 }]);
    }

    #[test]
    fn every_scattering_is_delivered_or_recalled() {
        let open = ReliableSample { own: [3, 1, 1], ..sample(1, 5) };
        let bad = report([sample(1, 5), open, sample(1, 5)], None);
        let unaccounted =
            AtomicityViolation::Unaccounted { at: 1, submitted: 3, delivered: 1, recalled: 1 };
        assert_eq!(bad.first, [unaccounted]);
    }
}
