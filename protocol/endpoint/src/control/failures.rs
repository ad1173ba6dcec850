//! Processes reported as failed.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use onepipe_base::{Incarnation, Mono, ProcessId, Timestamp};
use onepipe_wire::Failure;

/// Failed processes and the failures not yet polled. At most one entry per process, for its last
/// failed incarnation; empty unless there was a failure.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Failures {
    /// Disjoint ranges in ascending order.
    known: Vec<Known>,
    unreported: VecDeque<Failure>,
    /// Upper bound (exclusive) of process ids.
    processes_max: u32,
}

/// A failure, and when this process was notified of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Known {
    failure: Failure,
    since: Mono,
}

impl Failures {
    pub fn new(processes_max: u32) -> Self {
        Self { known: Vec::new(), unreported: VecDeque::new(), processes_max }
    }

    /// Returns the failure timestamp of this incarnation of `process`, if it has failed.
    #[inline]
    pub fn failed_at(&self, process: ProcessId, incarnation: Incarnation) -> Option<Timestamp> {
        if self.known.is_empty() {
            return None;
        }
        let Known { failure, .. } = self.known.get(self.position(process.0))?;
        failure.covers(process, incarnation).then_some(failure.at)
    }

    /// Returns the last failed incarnation of `process`, and when this process was notified of the
    /// failure.
    pub fn last_failed(&self, process: ProcessId) -> Option<(Incarnation, Mono)> {
        let Known { failure, since } = self.known.get(self.position(process.0))?;
        let incarnation = failure.incarnation;
        failure.covers(process, incarnation).then_some((incarnation, *since))
    }

    /// Returns the position of the first range that ends behind `process`.
    fn position(&self, process: u32) -> usize {
        self.known.partition_point(|known| end(&known.failure) <= process)
    }

    /// Inserts a failure from a notice that arrived at `now`. Returns whether it is new for any of
    /// its processes: it is not for a process of which the same or a later incarnation is known to
    /// have failed.
    pub fn insert(&mut self, now: Mono, failure: Failure) -> bool {
        let before = self.unreported.len();
        let last = end(&failure).min(self.processes_max);
        let mut first = failure.first.0;
        while first < last {
            let known = self.known.get(self.position(first)).map(|known| known.failure);
            let until = match known {
                None => last,
                Some(known) if known.first.0 > first => known.first.0,
                Some(known) => end(&known),
            };
            let until = until.min(last);
            let is_known =
                known.is_some_and(|known| known.covers(ProcessId(first), failure.incarnation));
            if !is_known {
                let (count, process) = (until - first, ProcessId(first));
                self.record(now, Failure { first: process, count, ..failure });
            }
            first = until;
        }
        self.unreported.len() > before
    }

    /// Records a range that lies within a known range of an earlier incarnation, or between two
    /// ranges.
    fn record(&mut self, now: Mono, failure: Failure) {
        self.unreported.push_back(failure);
        let mut position = self.position(failure.first.0);
        let previous = self.known.get(position).copied();
        if let Some(Known { failure: previous, since }) =
            previous.filter(|previous| previous.failure.first.0 < end(&failure))
        {
            self.known.remove(position);
            let (before, behind) =
                (failure.first.0 - previous.first.0, end(&previous) - end(&failure));
            if behind > 0 {
                let first = ProcessId(end(&failure));
                let failure = Failure { first, count: behind, ..previous };
                self.known.insert(position, Known { failure, since });
            }
            if before > 0 {
                let failure = Failure { count: before, ..previous };
                self.known.insert(position, Known { failure, since });
                position += 1;
            }
        }
        self.known.insert(position, Known { failure, since: now });
        self.merge(position);
        if let Some(before) = position.checked_sub(1) {
            self.merge(before);
        }
    }

    /// Merges the range at `position` with the next one if they are adjacent and equal.
    fn merge(&mut self, position: usize) {
        let [one, next, ..] = self.known[position..] else { return };
        let of = |Known { failure, since }: Known| {
            (failure.incarnation, failure.at, failure.cause, since)
        };
        let is_same = of(one) == of(next);
        if is_same && end(&one.failure) == next.failure.first.0 {
            self.known[position].failure.count += next.failure.count;
            self.known.remove(position + 1);
        }
    }

    /// Checks that the ranges are disjoint and ascend, and that each failure is known.
    pub fn check_invariants(&self) {
        let ascends = |pair: &[Known]| end(&pair[0].failure) <= pair[1].failure.first.0;
        assert!(self.known.windows(2).all(ascends), "ranges are disjoint and ascend");
        assert!(self.known.iter().all(|known| known.failure.count > 0), "a range has a process");
        let last = self.known.last().map_or(0, |last| end(&last.failure));
        assert!(last <= self.processes_max, "only processes fail");
        for failure in &self.unreported {
            let failed_at = self.failed_at(failure.first, failure.incarnation);
            assert!(failed_at.is_some(), "a failure is known before it is reported");
        }
    }

    /// Returns the next failure that was not polled yet, in order of arrival.
    pub fn poll(&mut self) -> Option<Failure> {
        self.unreported.pop_front()
    }

    pub fn has_unreported(&self) -> bool {
        !self.unreported.is_empty()
    }
}

/// Returns the process id behind a range.
fn end(failure: &Failure) -> u32 {
    failure.first.0.saturating_add(failure.count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PROCESSES: u32 = 24;
    const NOW: Mono = Mono::from_ns(1_000);

    fn failure(first: u32, count: u32, number: u32) -> Failure {
        let (first, incarnation) = (ProcessId(first), Incarnation(number));
        let at = Timestamp::from_ns(u64::from(number) * 100);
        Failure { first, count, incarnation, at, cause: onepipe_base::Cause::Unknown }
    }

    fn polled(failures: &mut Failures) -> Vec<(u32, u32, u32)> {
        let of = |failure: Failure| (failure.first.0, failure.count, failure.incarnation.0);
        core::iter::from_fn(|| failures.poll().map(of)).collect()
    }

    #[test]
    fn reports_each_failure_once() {
        let mut failures = Failures::new(PROCESSES);
        assert!(failures.insert(NOW, failure(4, 4, 2)));
        assert!(!failures.insert(NOW, failure(4, 4, 2)) && !failures.insert(NOW, failure(5, 1, 1)));
        assert!(failures.insert(NOW, failure(2, 8, 2)));
        assert_eq!(polled(&mut failures), [(4, 4, 2), (2, 2, 2), (8, 2, 2)]);
        let merged = Known { failure: failure(2, 8, 2), since: NOW };
        assert_eq!(failures.known, [merged], "the ranges are merged");
        assert!(failures.insert(NOW, failure(5, 1, 3)));
        assert_eq!(polled(&mut failures), [(5, 1, 3)]);
        let failed = |number| failures.failed_at(ProcessId(5), Incarnation(number));
        assert_eq!(failed(3).map(Timestamp::as_ns), Some(300));
        assert_eq!(failed(4), None);
        assert_eq!(failures.known.len(), 3);
    }

    #[test]
    fn the_last_failure_has_its_own_time() {
        let mut failures = Failures::new(PROCESSES);
        let at = |ns| Mono::from_ns(ns);
        assert!(
            failures.insert(at(10), failure(2, 8, 1)) && failures.insert(at(20), failure(4, 2, 2))
        );
        assert!(
            failures.insert(at(30), failure(10, 2, 1))
                && !failures.insert(at(40), failure(2, 8, 1))
        );
        let last = |process| failures.last_failed(ProcessId(process));
        let expected = |number, ns| Some((Incarnation(number), at(ns)));
        assert_eq!(
            (last(3), last(4), last(9)),
            (expected(1, 10), expected(2, 20), expected(1, 10))
        );
        assert_eq!((last(10), last(12)), (expected(1, 30), None));
    }

    #[test]
    fn ignores_processes_beyond_processes_max() {
        let mut failures = Failures::new(PROCESSES);
        assert!(failures.insert(NOW, failure(PROCESSES - 1, u32::MAX, 1)));
        assert_eq!(polled(&mut failures), [(PROCESSES - 1, 1, 1)]);
        assert!(!failures.insert(NOW, failure(PROCESSES, 1, 1)));
        assert!(!failures.insert(NOW, failure(u32::MAX, 1, 1)));
    }

    proptest! {
        /// Compares with a model that has a slot for every process.
        #[test]
        fn ranges_match_a_per_process_model(
            reported in prop::collection::vec((0..PROCESSES + 4, 1..9u32, 1..6u32), 1..40),
        ) {
            let mut failures = Failures::new(PROCESSES);
            let mut model = [0; PROCESSES as usize];
            for (first, count, number) in reported {
                let mut fresh = Vec::new();
                for process in first..(first + count).min(PROCESSES) {
                    let slot = &mut model[process as usize];
                    if *slot < number {
                        *slot = number;
                        fresh.push(process);
                    }
                }
                prop_assert_eq!(failures.insert(NOW, failure(first, count, number)), !fresh.is_empty());
                let event = polled(&mut failures);
                let spread = event.iter().flat_map(|&(first, count, _)| first..first + count);
                prop_assert_eq!(spread.collect::<Vec<_>>(), fresh);
                for (process, &last) in model.iter().enumerate() {
                    for number in 1..7 {
                        let failed =
                            failures.failed_at(ProcessId(process as u32), Incarnation(number));
                        let expected = (number <= last).then_some(u64::from(last) * 100);
                        prop_assert_eq!(failed.map(Timestamp::as_ns), expected);
                    }
                }
                prop_assert!(failures.known.len() <= PROCESSES as usize);
            }
        }
    }
}
