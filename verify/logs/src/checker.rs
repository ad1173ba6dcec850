//! Compares the logs of the processes: did all of them see one history?
//!
//! Best effort, for every window, sender *s* and receiver *r*: the deliveries of *r* from *s* plus
//! the losses of *r* reported to *s* equal what *s* delivered to itself (a process sends every
//! message to itself as well, so its own log is what it sent). The sums of fingerprints must agree,
//! not only the counts, so that a message at a wrong position does not pass for another. Where two
//! receivers lost nothing, their order-dependent hashes must agree as well; where one did, its
//! stream must still ascend, which the process checks at every delivery. A killed process cannot
//! report losses of its last second, so its messages may be missing at some receivers. They are
//! counted separately.
//!
//! Reliable: every scattering goes to all processes, so the windows of all receivers must be the
//! same, in contents and in order. What a victim delivered before it was killed must be in them
//! too: it was below the commit barrier, which passes nothing that is not in every receiver's
//! buffer.

use std::collections::BTreeMap;

use crate::Pauses;
use crate::log::{Counts, Failed, Failure, LogPart, SenderSum, StreamFaults, Window};

/// Time within which a loss is reported to its sender, after some probes, and then to the parent,
/// ten times a second, in ns. A process that is killed within it may not have reported its losses.
const REPORT_LAG_NS: u64 = 1_000_000_000;
/// Number of violations that are kept as text.
const TEXTS_MAX: usize = 10;

/// Result of the comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Windows compared.
    pub windows: u64,
    /// Windows in which all receivers delivered exactly the same, so that their order-dependent
    /// hashes were compared.
    pub windows_full: u64,
    /// Messages compared, counted at each receiver.
    pub messages: u64,
    /// Messages of a killed process that are missing at a receiver.
    pub died_with_sender: u64,
    /// Number of violations.
    pub violations: u64,
    /// The first violations.
    pub texts: Vec<String>,
}

impl Verdict {
    fn add(&mut self, comparison: Self) {
        self.windows += comparison.windows;
        self.windows_full += comparison.windows_full;
        self.messages += comparison.messages;
        self.died_with_sender += comparison.died_with_sender;
        self.violations += comparison.violations;
        let free = TEXTS_MAX.saturating_sub(self.texts.len());
        self.texts.extend(comparison.texts.into_iter().take(free));
    }

    fn violate(&mut self, text: String) {
        self.violations += 1;
        self.texts.push(text);
    }
}

/// Log of one process.
#[derive(Clone, Debug, Default)]
struct ProcessLog {
    windows: BTreeMap<u64, Window>,
    /// All windows below this are complete.
    closed_below: u64,
    /// Its own messages that failed, by window and receiver.
    failed: BTreeMap<(u64, u32), Failed>,
    /// When it was killed, in ns of the timestamps' clock.
    died_ns: Option<u64>,
    /// Pauses between deliveries of all messages, and of own ones.
    pauses: [Pauses; 2],
    failures: Vec<Failure>,
    counts: Counts,
    faults: StreamFaults,
}

impl ProcessLog {
    fn sender_sum(&self, window: u64, from: usize) -> SenderSum {
        self.windows.get(&window).map_or_else(SenderSum::default, |window| window.senders[from])
    }
}

/// Collects the logs of one service from all processes and compares them window by window.
#[derive(Clone, Debug)]
pub struct Checker {
    is_reliable: bool,
    window_ns: u64,
    logs: Vec<ProcessLog>,
    /// When a process was killed, and when sending stopped, in ns of the clock of all.
    killed_ns: Option<u64>,
    stopped_ns: u64,
    verdict: Verdict,
}

/// Longest pauses between deliveries, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LongestPauses {
    /// Those that the kill caused at a survivor: of all messages, and of the survivor's own ones.
    pub of_kill_ns: [u64; 2],
    /// All others: at the killed process, and without a kill, every pause is unrelated to one.
    pub other_ns: u64,
}

impl Checker {
    /// Creates a checker for `processes` processes with windows of this length.
    pub fn new(is_reliable: bool, window_ns: u64, processes: usize) -> Self {
        let logs = vec![ProcessLog::default(); processes];
        let verdict = Verdict::default();
        Self { is_reliable, window_ns, logs, killed_ns: None, stopped_ns: u64::MAX, verdict }
    }

    /// Adds a part of a process's log, taken at `now_ns`.
    pub fn add(&mut self, process: usize, part: LogPart, now_ns: u64) {
        let processes = self.logs.len();
        let log = &mut self.logs[process];
        for window in part.windows {
            assert_eq!(window.senders.len(), processes, "a worker logs every sender");
            log.windows.insert(window.number, window);
        }
        for (key, failed) in part.failed {
            let known = log.failed.entry(key).or_default();
            known.lost = known.lost.plus(failed.lost);
            known.unknown = known.unknown.plus(failed.unknown);
        }
        log.closed_below = log.closed_below.max(part.closed_below);
        for (known, pauses) in log.pauses.iter_mut().zip(part.pauses) {
            known.add(pauses, now_ns, self.killed_ns, self.stopped_ns);
        }
        (log.failures, log.counts, log.faults) = (part.failures, part.counts, part.faults);
    }

    /// Records that a process was killed at this time, in ns of the timestamps' clock and of the
    /// clock of all.
    pub fn on_killed(&mut self, process: usize, timestamp_ns: u64, now_ns: u64) {
        self.killed_ns = Some(now_ns);
        self.logs[process].died_ns = Some(timestamp_ns);
    }

    /// Counts and drops the windows in which nothing is missing or wrong. A window that is open
    /// somewhere, or that lacks messages whose loss may yet be reported, is compared again later.
    pub fn advance(&mut self) {
        let survivors = self.logs.iter().filter(|log| log.died_ns.is_none());
        let closed_below = survivors.map(|log| log.closed_below).min().unwrap_or(0);
        for window in self.windows_below(closed_below) {
            let comparison = self.compare(window);
            if comparison.violations == 0 && comparison.died_with_sender == 0 {
                self.complete(window, comparison);
            }
        }
    }

    /// Records that the processes stop sending, so that pauses end now at the latest.
    pub fn on_stopped(&mut self, now_ns: u64) {
        self.stopped_ns = now_ns;
    }

    /// Returns the failures that were reported to survivors.
    pub fn failures(&self) -> impl Iterator<Item = &Failure> {
        let survivors = self.logs.iter().filter(|log| log.died_ns.is_none());
        survivors.flat_map(|log| &log.failures)
    }

    /// Returns the number of scatterings of survivors that failed as to the survivor itself: of the
    /// reliable service, those that were recalled.
    pub fn recalled(&self) -> u64 {
        let survivors = self.logs.iter().filter(|log| log.died_ns.is_none());
        survivors.map(|log| log.counts.failed).sum()
    }

    /// Returns the longest pauses.
    pub fn longest_pauses(&self) -> LongestPauses {
        let mut longest = LongestPauses::default();
        for log in &self.logs {
            let [(near_ns, far_ns), (own_ns, _)] =
                log.pauses.each_ref().map(|pauses| pauses.longest_ns());
            longest.other_ns = longest.other_ns.max(far_ns);
            if self.killed_ns.is_some() && log.died_ns.is_none() {
                let [all, own] = longest.of_kill_ns;
                longest.of_kill_ns = [all.max(near_ns), own.max(own_ns)];
            } else {
                longest.other_ns = longest.other_ns.max(near_ns);
            }
        }
        longest
    }

    /// Returns the result so far.
    pub fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// Compares the remaining windows and returns the result.
    pub fn finish(&mut self) -> Verdict {
        for window in self.windows_below(u64::MAX) {
            let comparison = self.compare(window);
            self.complete(window, comparison);
        }
        if self.is_reliable {
            self.check_reports();
        }
        let sum =
            |fault: fn(&StreamFaults) -> u64| self.logs.iter().map(|log| fault(&log.faults)).sum();
        for (count, what) in [
            (sum(|faults| faults.order), "deliveries were not above the one before them"),
            (
                sum(|faults| faults.causality),
                "deliveries were not above what their sender had seen",
            ),
            (sum(|faults| faults.payload), "payloads differ from what their sender wrote"),
            (
                sum(|faults| faults.after_failure),
                "deliveries of a failed process were at or above its failure timestamp",
            ),
        ] {
            let count: u64 = count;
            if count > 0 {
                self.verdict.violations += count;
                self.verdict.texts.push(format!("{count} {what}"));
            }
        }
        self.verdict.clone()
    }

    /// Checks the reports of the reliable service at survivors: the failures are the same at all,
    /// and every scattering was delivered or recalled.
    fn check_reports(&mut self) {
        let mut first = None;
        for (at, log) in self.logs.iter().enumerate().filter(|(_, log)| log.died_ns.is_none()) {
            let failures = log.failures.iter().map(|one| (one.process, one.failed_ns));
            let failures: Vec<_> = failures.collect();
            let (one, expected) = first.get_or_insert_with(|| (at, failures.clone()));
            if *expected != failures {
                self.verdict.violate(format!(
                    "processes {one} and {at} received different failures: {expected:?}, \
                     {failures:?}"
                ));
            }
            let Counts { submitted, returned, failed, .. } = log.counts;
            if submitted != returned + failed {
                self.verdict.violate(format!(
                    "process {at} submitted {submitted} reliable scatterings, but {returned} were \
                     delivered and {failed} recalled"
                ));
            }
        }
    }

    /// Returns the windows below `limit` that appear in any log.
    fn windows_below(&self, limit: u64) -> Vec<u64> {
        let mut windows: Vec<u64> = Vec::new();
        for log in &self.logs {
            windows.extend(log.windows.range(..limit).map(|(number, _)| *number));
            windows.extend(log.failed.range(..(limit, 0)).map(|((number, _), _)| *number));
        }
        windows.sort_unstable();
        windows.dedup();
        windows
    }

    /// Adds a comparison to the verdict and drops the window.
    fn complete(&mut self, window: u64, comparison: Verdict) {
        self.verdict.add(comparison);
        for log in &mut self.logs {
            log.windows.remove(&window);
            log.failed.retain(|(number, _), _| *number != window);
        }
    }

    fn compare(&self, window: u64) -> Verdict {
        let mut comparison = Verdict::default();
        let mut receivers = Vec::new();
        for (at, log) in self.logs.iter().enumerate() {
            if log.closed_below > window {
                receivers.push(at);
            } else if log.died_ns.is_none() {
                comparison.violate(format!("process {at} did not complete window {window}"));
            }
        }
        for from in 0..self.logs.len() {
            if self.is_reliable {
                let counts =
                    receivers.iter().map(|at| self.logs[*at].sender_sum(window, from).count);
                comparison.messages += counts.sum::<u64>();
            } else {
                self.compare_sender(window, from, &receivers, &mut comparison);
            }
        }
        let is_full = self.compare_order(window, &receivers, &mut comparison);
        // A window that has only late loss reports was counted before.
        comparison.windows = u64::from(comparison.messages > 0);
        comparison.windows_full = comparison.windows * u64::from(is_full);
        comparison
    }

    /// Checks that every receiver has what this sender sent, except reported losses.
    ///
    /// A message with unknown outcome was delivered or lost. So a receiver is right if it has none
    /// of them, all of them, or some; in the last case only the counts can be checked.
    fn compare_sender(
        &self,
        window: u64,
        from: usize,
        receivers: &[usize],
        comparison: &mut Verdict,
    ) {
        let sender = &self.logs[from];
        if sender.closed_below <= window {
            // The process was killed before it closed this window (a live one is reported above):
            // the receiver with the most messages is the best reference.
            let counts = receivers.iter().map(|at| self.logs[*at].sender_sum(window, from).count);
            let most = counts.clone().max().unwrap_or(0);
            comparison.messages += counts.clone().sum::<u64>();
            comparison.died_with_sender += counts.map(|count| most - count).sum::<u64>();
            return;
        }
        let ends_ns = window.saturating_add(1).saturating_mul(self.window_ns);
        let may_lack_reports = sender.died_ns.is_some_and(|died| ends_ns + REPORT_LAG_NS > died);
        let sent = sender.sender_sum(window, from);
        for &at in receivers {
            let delivered = self.logs[at].sender_sum(window, from);
            let failed = sender.failed.get(&(window, at as u32)).copied().unwrap_or_default();
            comparison.messages += delivered.count;
            let accounted = delivered.plus(failed.lost);
            let with_unknown = accounted.plus(failed.unknown);
            if accounted == sent || with_unknown == sent {
                continue;
            }
            if accounted.count > sent.count {
                let messages = accounted.count - sent.count;
                comparison.violate(format!(
                    "{messages} messages of process {from} to process {at} were delivered though \
                     reported lost, or twice, or never sent (window {window})"
                ));
            } else if accounted.count == sent.count || with_unknown.count == sent.count {
                comparison.violate(format!(
                    "process {at} delivered other messages of process {from} than it sent, or at \
                     other positions in the order (window {window})"
                ));
            } else if with_unknown.count > sent.count {
                // Some of the messages with unknown outcome were delivered.
            } else if may_lack_reports {
                comparison.died_with_sender += sent.count - with_unknown.count;
            } else {
                let messages = sent.count - with_unknown.count;
                comparison.violate(format!(
                    "process {at} lacks {messages} messages of process {from} without a loss \
                     report (window {window})"
                ));
            }
        }
    }

    /// Checks that receivers with the same messages have them in the same order, and that all have
    /// the same if the service is reliable. Returns whether all have the same.
    fn compare_order(&self, window: u64, receivers: &[usize], comparison: &mut Verdict) -> bool {
        let mut distinct: Vec<(usize, Option<&Window>)> = Vec::new();
        for &at in receivers {
            let log = self.logs[at].windows.get(&window);
            let senders = |log: Option<&'_ Window>| log.map(|log| log.senders.clone());
            match distinct.iter().find(|(_, known)| senders(*known) == senders(log)) {
                Some((_, known)) if *known == log => {}
                Some((one, _)) => comparison.violate(format!(
                    "processes {one} and {at} delivered the same messages in different orders \
                     (window {window})"
                )),
                None => distinct.push((at, log)),
            }
        }
        if let (true, [(one, _), others @ ..]) = (self.is_reliable, &distinct[..]) {
            for (other, _) in others {
                comparison.violate(format!(
                    "processes {one} and {other} delivered different reliable messages (window \
                     {window})"
                ));
            }
        }
        distinct.len() == 1
    }
}

#[cfg(test)]
mod tests;
