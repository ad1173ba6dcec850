//! Compares the logs of the processes: did all of them see one history?
//!
//! For every window, sender *s* and receiver *r*: the deliveries of *r* from *s* plus the losses of
//! *r* reported to *s* equal what *s* delivered to itself (a process sends every message to itself
//! as well, so its own log is what it sent). The sums of fingerprints must agree, not only the
//! counts, so that a message at a wrong position does not pass for another. Where two receivers
//! lost nothing, their order-dependent hashes must agree as well; where one did, its stream must
//! still ascend, which the process checks at every delivery.
//!
//! A killed process cannot report losses of its last second, so its messages may be missing at some
//! receivers: best effort. They are counted separately.

use std::collections::BTreeMap;
use std::fmt;

use super::log::{SendFailures, SenderSum, Window};

/// Time within which a loss is reported to its sender, after some probes, and then to the parent,
/// ten times a second, in ns. A process that is killed within it may not have reported its losses.
const REPORT_LAG_NS: u64 = 1_000_000_000;
/// Number of violations that are kept as text.
const TEXTS_MAX: usize = 10;

/// A contradiction between two logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Two receivers delivered the same messages in different orders.
    Order { window: u64, one: u32, other: u32 },
    /// A receiver delivered as many messages of a sender as it sent, but different ones.
    Mismatch { window: u64, from: u32, at: u32 },
    /// A receiver lacks messages whose loss was not reported to the sender.
    Unreported { window: u64, from: u32, at: u32, messages: u64 },
    /// More messages were delivered and reported lost than were sent.
    Excess { window: u64, from: u32, at: u32, messages: u64 },
    /// A live process did not complete a window that others have closed.
    Unfinished { window: u64, at: u32 },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Order { window, one, other } => write!(
                f,
                "processes {one} and {other} delivered the same messages in different orders \
                 (window {window})"
            ),
            Self::Mismatch { window, from, at } => write!(
                f,
                "process {at} delivered other messages of process {from} than it sent, or at \
                 other positions in the order (window {window})"
            ),
            Self::Unreported { window, from, at, messages } => write!(
                f,
                "process {at} lacks {messages} messages of process {from} without a loss report \
                 (window {window})"
            ),
            Self::Excess { window, from, at, messages } => write!(
                f,
                "{messages} messages of process {from} to process {at} were delivered though \
                 reported lost, or twice, or never sent (window {window})"
            ),
            Self::Unfinished { window, at } => {
                write!(f, "process {at} did not complete window {window}")
            }
        }
    }
}

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
    /// Messages missing at a receiver whose loss was reported to the sender.
    pub lost: u64,
    /// Messages reported to their sender with unknown outcome.
    pub unknown: u64,
    /// Messages of a killed process that are missing at a receiver.
    pub died_with_sender: u64,
    /// Number of violations.
    pub violations: u64,
    /// The first violations.
    pub first: Vec<Violation>,
}

/// Log of one process.
#[derive(Clone, Debug, Default)]
struct ProcessLog {
    windows: BTreeMap<u64, Window>,
    /// All windows below this are complete.
    closed_below: u64,
    /// Reports about its own messages, by window and receiver.
    failures: BTreeMap<(u64, u32), (SenderSum, SenderSum)>,
    /// When it was killed, in ns of the timestamps' clock.
    died_ns: Option<u64>,
}

impl ProcessLog {
    fn sender_sum(&self, window: u64, from: usize) -> SenderSum {
        self.windows.get(&window).map_or_else(SenderSum::default, |window| window.senders[from])
    }

    fn failures(&self, window: u64, to: usize) -> (SenderSum, SenderSum) {
        self.failures.get(&(window, to as u32)).copied().unwrap_or_default()
    }
}

/// Collects the logs of all processes and compares them window by window.
#[derive(Clone, Debug)]
pub struct Checker {
    window_ns: u64,
    process_logs: Vec<ProcessLog>,
    verdict: Verdict,
}

impl Checker {
    /// Creates a checker for `processes` processes with windows of this length.
    pub fn new(window_ns: u64, processes: usize) -> Self {
        let process_logs = vec![ProcessLog::default(); processes];
        Self { window_ns, process_logs, verdict: Verdict::default() }
    }

    /// Adds a part of a process's log.
    pub fn add(
        &mut self,
        process: usize,
        windows: Vec<Window>,
        failures: Vec<SendFailures>,
        closed_below: u64,
    ) {
        let processes = self.process_logs.len();
        let process_log = &mut self.process_logs[process];
        for window in windows {
            assert_eq!(window.senders.len(), processes, "a worker logs every sender");
            process_log.windows.insert(window.number, window);
        }
        for failure in failures {
            let known = process_log.failures.entry((failure.window, failure.to)).or_default();
            *known = (known.0.plus(failure.lost), known.1.plus(failure.unknown));
        }
        process_log.closed_below = process_log.closed_below.max(closed_below);
    }

    /// Records that a process was killed at this time.
    pub fn on_killed(&mut self, process: usize, timestamp_ns: u64) {
        self.process_logs[process].died_ns = Some(timestamp_ns);
    }

    /// Counts and drops the windows in which nothing is missing or wrong. A window that is open
    /// somewhere, or that lacks messages whose loss may yet be reported, is compared again later.
    pub fn advance(&mut self) -> &Verdict {
        let survivors =
            self.process_logs.iter().filter(|process_log| process_log.died_ns.is_none());
        let closed_below = survivors.map(|process_log| process_log.closed_below).min().unwrap_or(0);
        for window in self.windows_below(closed_below) {
            let comparison = self.compare(window);
            if comparison.violations.is_empty() && comparison.died_with_sender == 0 {
                self.add_to_verdict(comparison);
                self.remove_window(window);
            }
        }
        &self.verdict
    }

    /// Compares the remaining windows and returns the result.
    pub fn finish(mut self) -> Verdict {
        for window in self.windows_below(u64::MAX) {
            let comparison = self.compare(window);
            self.add_to_verdict(comparison);
            self.remove_window(window);
        }
        self.verdict
    }

    /// Returns the windows below `limit` that appear in any log.
    fn windows_below(&self, limit: u64) -> Vec<u64> {
        let mut windows: Vec<u64> = Vec::new();
        for process_log in &self.process_logs {
            windows.extend(process_log.windows.range(..limit).map(|(number, _)| *number));
            windows
                .extend(process_log.failures.range(..(limit, 0)).map(|((number, _), _)| *number));
        }
        windows.sort_unstable();
        windows.dedup();
        windows
    }

    /// Removes a window and the failures of its messages.
    fn remove_window(&mut self, window: u64) {
        for process_log in &mut self.process_logs {
            process_log.windows.remove(&window);
            while let Some(entry) = process_log.failures.range((window, 0)..(window + 1, 0)).next()
            {
                let key = *entry.0;
                process_log.failures.remove(&key);
            }
        }
    }

    fn add_to_verdict(&mut self, comparison: Comparison) {
        let verdict = &mut self.verdict;
        // A window that has only late loss reports was counted before.
        verdict.windows += u64::from(comparison.messages > 0);
        verdict.windows_full += u64::from(comparison.messages > 0 && comparison.is_full);
        verdict.messages += comparison.messages;
        verdict.lost += comparison.lost;
        verdict.unknown += comparison.unknown;
        verdict.died_with_sender += comparison.died_with_sender;
        verdict.violations += comparison.violations.len() as u64;
        let free = TEXTS_MAX.saturating_sub(verdict.first.len());
        verdict.first.extend(comparison.violations.into_iter().take(free));
    }

    fn compare(&self, window: u64) -> Comparison {
        let mut comparison = Comparison { is_full: true, ..Comparison::default() };
        let mut receivers = Vec::new();
        for (at, process_log) in self.process_logs.iter().enumerate() {
            if process_log.closed_below > window {
                receivers.push(at);
            } else if process_log.died_ns.is_none() {
                comparison.violations.push(Violation::Unfinished { window, at: at as u32 });
            }
        }
        for from in 0..self.process_logs.len() {
            self.compare_sender(window, from, &receivers, &mut comparison);
        }
        self.compare_order(window, &receivers, &mut comparison);
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
        comparison: &mut Comparison,
    ) {
        let sender = &self.process_logs[from];
        let ends_ns = window.saturating_add(1).saturating_mul(self.window_ns);
        let may_lack_reports = sender.died_ns.is_some_and(|died| ends_ns + REPORT_LAG_NS > died);
        let sent = (sender.closed_below > window).then(|| sender.sender_sum(window, from));
        let Some(sent) = sent else {
            // It was killed before it closed this window (a live one is reported above): the
            // receiver with the most messages is the best reference.
            let counts =
                receivers.iter().map(|at| self.process_logs[*at].sender_sum(window, from).count);
            let most = counts.clone().max().unwrap_or(0);
            comparison.messages += counts.clone().sum::<u64>();
            comparison.died_with_sender += counts.map(|count| most - count).sum::<u64>();
            return;
        };
        for &at in receivers {
            let delivered = self.process_logs[at].sender_sum(window, from);
            let (lost, unknown) = sender.failures(window, at);
            comparison.messages += delivered.count;
            comparison.lost += lost.count;
            comparison.unknown += unknown.count;
            let accounted = delivered.plus(lost);
            let with_unknown = accounted.plus(unknown);
            let (window, from, at) = (window, from as u32, at as u32);
            if accounted == sent || with_unknown == sent {
                continue;
            }
            if accounted.count > sent.count {
                let messages = accounted.count - sent.count;
                comparison.violations.push(Violation::Excess { window, from, at, messages });
            } else if accounted.count == sent.count {
                comparison.violations.push(Violation::Mismatch { window, from, at });
            } else if with_unknown.count > sent.count {
                // Some of the messages with unknown outcome were delivered.
            } else if may_lack_reports {
                comparison.died_with_sender += sent.count - with_unknown.count;
            } else if with_unknown.count < sent.count {
                let messages = sent.count - with_unknown.count;
                comparison.violations.push(Violation::Unreported { window, from, at, messages });
            } else {
                comparison.violations.push(Violation::Mismatch { window, from, at });
            }
        }
    }

    /// Checks that receivers with the same messages have them in the same order.
    fn compare_order(&self, window: u64, receivers: &[usize], comparison: &mut Comparison) {
        let mut distinct: Vec<(usize, &Window)> = Vec::new();
        for &at in receivers {
            let Some(log) = self.process_logs[at].windows.get(&window) else {
                comparison.is_full = false;
                continue;
            };
            match distinct.iter().find(|(_, known)| known.senders == log.senders) {
                Some((_, known)) if known.order_hash == log.order_hash => {}
                Some((one, _)) => comparison.violations.push(Violation::Order {
                    window,
                    one: *one as u32,
                    other: at as u32,
                }),
                None => distinct.push((at, log)),
            }
        }
        comparison.is_full &= distinct.len() == 1;
    }
}

#[derive(Clone, Debug, Default)]
struct Comparison {
    is_full: bool,
    messages: u64,
    lost: u64,
    unknown: u64,
    died_with_sender: u64,
    violations: Vec<Violation>,
}

#[cfg(test)]
mod tests;
