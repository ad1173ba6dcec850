//! Compares what the processes logged: did all of them see one history?
//!
//! For every window, sender *s* and receiver *r*: what *r* delivered of *s*, and what *s* was told
//! that *r* lost, together are what *s* delivered to itself of its own (a process hands its own
//! messages to itself, so its own log is what it sent). The sums of fingerprints must agree, not
//! only the counts: so a message in a wrong place in the order does not pass for another. Where two
//! receivers lost nothing, the hashes that depend on the order must agree as well; where one did,
//! each stream by itself ascends, which the process checks at every delivery.
//!
//! A process that is killed takes to its grave what it had not yet been told. So its messages of
//! its last second may be missing at some receivers: best effort. They are counted apart.

use std::collections::BTreeMap;
use std::fmt;

use super::log::{SendFailures, SenderSum, Window};

/// A sender is told about a loss within its probes, and tells us ten times a second; a process that
/// was killed may not have come to that. In ns.
const REPORT_LAG_NS: u64 = 1_000_000_000;
/// How many violations are kept as text.
const TEXTS_MAX: usize = 10;

/// How two logs contradict each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Two receivers delivered the same messages in different orders.
    Order { window: u64, one: u32, other: u32 },
    /// A receiver delivered as many messages of a sender as it sent, but not those.
    Mismatch { window: u64, from: u32, at: u32 },
    /// A receiver misses messages of a sender that was not told.
    Unreported { window: u64, from: u32, at: u32, messages: u64 },
    /// More messages were delivered and reported lost than were sent.
    Excess { window: u64, from: u32, at: u32, messages: u64 },
    /// A living process never came to the end of a window that others have closed.
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
                "process {at}delivered other messages of process {from} than it sent, or at \
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
                write!(f, "process {at}did not complete window {window}")
            }
        }
    }
}

/// What the comparison found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Windows compared.
    pub windows: u64,
    /// Of those, windows in which all had exactly the same, so that the order-dependent hashes of
    /// all were compared.
    pub windows_full: u64,
    /// Messages that the comparison covered, counted at each receiver.
    pub messages: u64,
    /// Messages that are missing at a receiver, and whose sender was told so.
    pub lost: u64,
    /// Messages of which their sender was told that nobody knows.
    pub unknown: u64,
    /// Messages of a killed process that are missing at a receiver.
    pub died_with_sender: u64,
    /// Contradictions.
    pub violations: u64,
    /// The first of them.
    pub first: Vec<Violation>,
}

/// One process's words.
#[derive(Clone, Debug, Default)]
struct ProcessLog {
    windows: BTreeMap<u64, Window>,
    /// All windows below this are complete.
    closed_below: u64,
    /// What it was told about its own messages: by window and receiver.
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
    /// A checker of so many processes, whose windows have this length.
    pub fn new(window_ns: u64, processes: usize) -> Self {
        let process_logs = vec![ProcessLog::default(); processes];
        Self { window_ns, process_logs, verdict: Verdict::default() }
    }

    /// Takes a further part of a process's log.
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

    /// A process was killed at this time.
    pub fn on_killed(&mut self, process: usize, timestamp_ns: u64) {
        self.process_logs[process].died_ns = Some(timestamp_ns);
    }

    /// Counts and forgets the windows in which everybody agrees; a window that is open somewhere,
    /// or in which something is missing of which its sender may yet be told, stays.
    pub fn advance(&mut self) -> &Verdict {
        let living = self.process_logs.iter().filter(|process_log| process_log.died_ns.is_none());
        let closed_below = living.map(|process_log| process_log.closed_below).min().unwrap_or(0);
        for window in self.windows_below(closed_below) {
            let comparison = self.compare(window);
            if comparison.violations.is_empty() && comparison.died_with_sender == 0 {
                self.count(comparison);
                self.remove_store(window);
            }
        }
        &self.verdict
    }

    /// Compares all that is left.
    pub fn finish(mut self) -> Verdict {
        for window in self.windows_below(u64::MAX) {
            let comparison = self.compare(window);
            self.count(comparison);
            self.remove_store(window);
        }
        self.verdict
    }

    /// Windows that anybody has something to say about.
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

    fn remove_store(&mut self, window: u64) {
        for process_log in &mut self.process_logs {
            process_log.windows.remove(&window);
            while let Some(entry) = process_log.failures.range((window, 0)..(window + 1, 0)).next()
            {
                let key = *entry.0;
                process_log.failures.remove(&key);
            }
        }
    }

    fn count(&mut self, comparison: Comparison) {
        let verdict = &mut self.verdict;
        // A window that is known from late reports alone has been counted.
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
        let mut found = Comparison { is_full: true, ..Comparison::default() };
        let mut receivers = Vec::new();
        for (at, process_log) in self.process_logs.iter().enumerate() {
            if process_log.closed_below > window {
                receivers.push(at);
            } else if process_log.died_ns.is_none() {
                found.violations.push(Violation::Unfinished { window, at: at as u32 });
            }
        }
        for from in 0..self.process_logs.len() {
            self.compare_sender(window, from, &receivers, &mut found);
        }
        self.compare_order(window, &receivers, &mut found);
        found
    }

    /// Does every receiver have what this sender sent, less what it was told is lost?
    fn compare_sender(
        &self,
        window: u64,
        from: usize,
        receivers: &[usize],
        found: &mut Comparison,
    ) {
        let sender = &self.process_logs[from];
        let ends_ns = window.saturating_add(1).saturating_mul(self.window_ns);
        let died_then = sender.died_ns.is_some_and(|died| ends_ns + REPORT_LAG_NS > died);
        let sent = (sender.closed_below > window).then(|| sender.sender_sum(window, from));
        let Some(sent) = sent else {
            // It was killed before it closed this window (a living one has been reported above):
            // the receiver that has most is all we know.
            let counts =
                receivers.iter().map(|at| self.process_logs[*at].sender_sum(window, from).count);
            let most = counts.clone().max().unwrap_or(0);
            found.messages += counts.clone().sum::<u64>();
            found.died_with_sender += counts.map(|count| most - count).sum::<u64>();
            return;
        };
        for &at in receivers {
            let got = self.process_logs[at].sender_sum(window, from);
            let (lost, unknown) = sender.failures(window, at);
            found.messages += got.count;
            found.lost += lost.count;
            found.unknown += unknown.count;
            let accounted = got.plus(lost);
            let may_be = accounted.plus(unknown);
            let (window, from, at) = (window, from as u32, at as u32);
            if accounted == sent || may_be == sent {
                continue;
            }
            if accounted.count > sent.count {
                let messages = accounted.count - sent.count;
                found.violations.push(Violation::Excess { window, from, at, messages });
            } else if accounted.count == sent.count {
                found.violations.push(Violation::Mismatch { window, from, at });
            } else if may_be.count > sent.count {
                // Some of the unknown ones were delivered; which, the sums cannot say.
            } else if died_then {
                found.died_with_sender += sent.count - may_be.count;
            } else if may_be.count < sent.count {
                let messages = sent.count - may_be.count;
                found.violations.push(Violation::Unreported { window, from, at, messages });
            } else {
                found.violations.push(Violation::Mismatch { window, from, at });
            }
        }
    }

    /// Do receivers that have the same messages have them in the same order?
    fn compare_order(&self, window: u64, receivers: &[usize], found: &mut Comparison) {
        let mut kinds: Vec<(usize, &Window)> = Vec::new();
        for &at in receivers {
            let Some(log) = self.process_logs[at].windows.get(&window) else {
                found.is_full = false;
                continue;
            };
            match kinds.iter().find(|(_, kind)| kind.senders == log.senders) {
                Some((_, kind)) if kind.order_hash == log.order_hash => {}
                Some((one, _)) => found.violations.push(Violation::Order {
                    window,
                    one: *one as u32,
                    other: at as u32,
                }),
                None => kinds.push((at, log)),
            }
        }
        found.is_full &= kinds.len() == 1;
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
