//! Log of one stream of a process, compact enough to be compared by the parent.
//!
//! Time is divided into windows by the *timestamps* of messages, so that all processes divide it at
//! the same points. For each window a log keeps, per sender, the number of messages and the sum of
//! their fingerprints (losses can be added to such a sum), and for the whole window a hash that
//! depends on the order.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Fault;
use crate::pauses::{Pause, PauseRecorder};

/// An injected fault concerns each entry whose number is a multiple of this.
const FAULT_EVERY: u64 = 10_000;

/// Number of messages, and the sum of their fingerprints modulo 2^64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SenderSum {
    pub count: u64,
    pub sum: u64,
}

impl SenderSum {
    /// Returns the sum of both.
    pub fn plus(self, other: Self) -> Self {
        Self { count: self.count + other.count, sum: self.sum.wrapping_add(other.sum) }
    }
}

/// All deliveries with timestamps of one window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Timestamp divided by the length of a window.
    pub number: u64,
    /// Hash of the deliveries in order.
    pub order_hash: u64,
    /// One entry per sender.
    pub senders: Vec<SenderSum>,
}

/// Messages of one window to one process that were reported to their sender as failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// Will never be delivered.
    pub lost: SenderSum,
    /// The outcome is unknown.
    pub unknown: SenderSum,
}

/// A failure as reported to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The failed process.
    pub process: u32,
    /// Its failure timestamp, in ns.
    pub failed_ns: u64,
    /// Time of the report, in ns of the clock of all.
    pub notified_ns: u64,
}

/// Numbers since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Own scatterings: submitted, delivered to the process itself, failed as to that message.
    pub submitted: u64,
    pub returned: u64,
    pub failed: u64,
    /// Own messages reported lost, or with unknown outcome.
    pub lost: u64,
    pub unknown: u64,
}

/// Faults of the stream of one process, found without comparing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamFaults {
    /// Deliveries not above the previous one, or below the barrier: out of order, or duplicates.
    pub order: u64,
    /// Deliveries at or below a timestamp that their sender had delivered before sending.
    pub causality: u64,
    /// Payloads that differ from what their sender wrote.
    pub payload: u64,
    /// Deliveries from failed processes at or above their failure timestamps.
    pub after_failure: u64,
}

/// What a log has collected since it was last taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPart {
    /// Complete windows, in order.
    pub windows: Vec<Window>,
    /// All windows below this number are complete.
    pub closed_below: u64,
    /// Own messages that failed, by window and receiver.
    pub failed: Vec<((u64, u32), Failed)>,
    /// Pauses between deliveries of all messages, and of own ones.
    pub pauses: [Vec<Pause>; 2],
    /// All failures that were reported to the process.
    pub failures: Vec<Failure>,
    pub counts: Counts,
    /// Faults since the start.
    pub faults: StreamFaults,
}

/// A message in the log.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Timestamp, in ns.
    pub timestamp_ns: u64,
    /// Process that sent the message.
    pub from: u32,
    /// Index in its scattering.
    pub index: u16,
    /// Number of its scattering, as counted by its sender and written in the payload.
    pub sequence: u64,
    /// Highest timestamp delivered at the sender when it submitted the message, in ns.
    pub seen_ns: u64,
}

/// Log of one stream.
#[derive(Clone, Debug)]
pub struct Log {
    process: u32,
    window_ns: u64,
    open: Window,
    /// Timestamp, sender and index of the last delivery.
    last: Option<(u64, u32, u16)>,
    /// Highest timestamp delivered from each sender, in ns.
    highest_ns: Vec<u64>,
    failures: Vec<Failure>,
    counts: Counts,
    closed: Vec<Window>,
    failed: BTreeMap<(u64, u32), Failed>,
    /// Receivers of messages that failed before their scattering was sent, by its number.
    unsent: BTreeMap<u64, Vec<u32>>,
    /// Pauses between deliveries of all messages, and of own ones.
    pauses: [PauseRecorder; 2],
    faults: StreamFaults,
    inject_fault: Option<Fault>,
    /// Number of entries, and the entry that an injected fault withholds until the next one.
    count: u64,
    withheld: Option<Entry>,
}

impl Log {
    /// Creates an empty log of `process`, for `processes` senders, with windows of this length. The
    /// first pause begins at `now_ns`.
    pub fn new(process: u32, processes: usize, window_ns: u64, now_ns: u64) -> Self {
        let senders = vec![SenderSum::default(); processes];
        Self {
            process,
            window_ns,
            open: Window { number: 0, order_hash: 0, senders },
            last: None,
            highest_ns: vec![0; processes],
            failures: Vec::new(),
            counts: Counts::default(),
            closed: Vec::new(),
            failed: BTreeMap::new(),
            unsent: BTreeMap::new(),
            pauses: [(); 2].map(|()| PauseRecorder::new(now_ns)),
            faults: StreamFaults::default(),
            inject_fault: None,
            count: 0,
            withheld: None,
        }
    }

    /// Injects a fault from now on.
    pub fn inject(&mut self, fault: Fault) {
        self.inject_fault = Some(fault);
    }

    /// Begins the first pause again.
    pub fn start_pauses(&mut self, now_ns: u64) {
        self.pauses = [(); 2].map(|()| PauseRecorder::new(now_ns));
    }

    /// Returns the time of the last delivery.
    pub fn delivered_ns(&self) -> u64 {
        self.pauses[0].last_ns()
    }

    /// Records a message with a payload that its sender did not write.
    pub fn on_corrupted(&mut self) {
        self.faults.payload += 1;
    }

    /// Adds the next message of the stream, delivered at `now_ns`.
    #[inline]
    pub fn on_delivered(&mut self, now_ns: u64, entry: Entry) {
        self.pauses[0].on_delivered(now_ns);
        if entry.from == self.process {
            self.counts.returned += 1;
            self.pauses[1].on_delivered(now_ns);
        }
        match self.inject_fault {
            None => self.add(entry),
            Some(fault) => self.add_with_fault(fault, entry),
        }
    }

    #[cold]
    fn add_with_fault(&mut self, fault: Fault, mut entry: Entry) {
        self.count += 1;
        if let Some(mut withheld) = self.withheld.take() {
            if fault == Fault::Swap {
                std::mem::swap(&mut withheld.sequence, &mut entry.sequence);
                std::mem::swap(&mut withheld, &mut entry);
            }
            self.add(entry);
            self.add(withheld);
        } else if !self.count.is_multiple_of(FAULT_EVERY) {
            self.add(entry);
        } else if fault != Fault::Loss {
            self.withheld = Some(entry);
        }
    }

    #[inline]
    fn add(&mut self, entry: Entry) {
        let Entry { timestamp_ns, from, index, sequence, seen_ns } = entry;
        let at = from as usize;
        if at >= self.open.senders.len() {
            self.faults.payload += 1;
            return;
        }
        if from == self.process && !self.unsent.is_empty() {
            for to in self.unsent.remove(&sequence).into_iter().flatten() {
                self.add_failed(to, timestamp_ns, sequence, true);
            }
        }
        let (key, number) = ((timestamp_ns, from, index), timestamp_ns / self.window_ns);
        let is_ascending = number >= self.open.number && self.last.is_none_or(|last| last < key);
        self.faults.order += u64::from(!is_ascending);
        self.faults.causality += u64::from(timestamp_ns <= seen_ns);
        let is_above = |one: &Failure| one.process == from && timestamp_ns >= one.failed_ns;
        let is_after = self.failures.iter().any(is_above);
        self.faults.after_failure += u64::from(is_after);
        self.highest_ns[at] = self.highest_ns[at].max(timestamp_ns);
        self.close_below(number);
        self.last = Some(key);
        let fingerprint = fingerprint(timestamp_ns, from, sequence);
        let order_hash = self.open.order_hash.rotate_left(5) ^ fingerprint;
        self.open.order_hash = order_hash.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let sender_sum = &mut self.open.senders[at];
        *sender_sum = sender_sum.plus(SenderSum { count: 1, sum: fingerprint });
    }

    /// Records that a message of this process was reported lost, or with unknown outcome.
    ///
    /// A message to a process that does not respond fails at once, without a timestamp, and the
    /// rest of its scattering is sent without it. The timestamp is known when the scattering's
    /// message to this process itself is delivered.
    pub fn on_failed(&mut self, to: u32, timestamp_ns: Option<u64>, sequence: u64, is_lost: bool) {
        let is_own = to == self.process;
        self.counts.failed += u64::from(is_own);
        self.counts.lost += u64::from(is_lost);
        self.counts.unknown += u64::from(!is_lost);
        match timestamp_ns {
            Some(timestamp_ns) => self.add_failed(to, timestamp_ns, sequence, is_lost),
            // The scattering never comes back, so no compared log contains it.
            None if is_own => drop(self.unsent.remove(&sequence)),
            None => self.unsent.entry(sequence).or_default().push(to),
        }
    }

    fn add_failed(&mut self, to: u32, timestamp_ns: u64, sequence: u64, is_lost: bool) {
        let failed = self.failed.entry((timestamp_ns / self.window_ns, to)).or_default();
        let sender_sum = if is_lost { &mut failed.lost } else { &mut failed.unknown };
        let sum = fingerprint(timestamp_ns, self.process, sequence);
        *sender_sum = sender_sum.plus(SenderSum { count: 1, sum });
    }

    /// Records that a message of this process was recalled with its whole scattering.
    pub fn on_recalled(&mut self, to: u32) {
        self.counts.failed += u64::from(to == self.process);
    }

    /// Records that a process has failed: nothing of it at or above its failure timestamp may be
    /// delivered.
    pub fn on_process_failed(&mut self, failure: Failure) {
        self.failures.push(failure);
        let highest_ns = self.highest_ns.get(failure.process as usize);
        let is_after = highest_ns.is_some_and(|highest_ns| *highest_ns >= failure.failed_ns);
        self.faults.after_failure += u64::from(is_after);
    }

    /// Records that this process has submitted its next scattering.
    pub fn on_submitted(&mut self) {
        self.counts.submitted += 1;
    }

    /// Returns the numbers so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Takes what is complete, after everything below the barrier has been delivered.
    pub fn take(&mut self, barrier_ns: Option<u64>) -> LogPart {
        self.close_below(barrier_ns.unwrap_or(0) / self.window_ns);
        LogPart {
            windows: std::mem::take(&mut self.closed),
            closed_below: self.open.number,
            failed: std::mem::take(&mut self.failed).into_iter().collect(),
            pauses: self.pauses.each_mut().map(PauseRecorder::take),
            failures: self.failures.clone(),
            counts: self.counts,
            faults: self.faults,
        }
    }

    /// Closes the open window if it is below this one, which becomes the open one.
    #[inline]
    fn close_below(&mut self, number: u64) {
        if number <= self.open.number {
            return;
        }
        let senders = vec![SenderSum::default(); self.open.senders.len()];
        let closed = std::mem::replace(&mut self.open, Window { number, order_hash: 0, senders });
        if closed.senders.iter().any(|sender_sum| sender_sum.count > 0) {
            self.closed.push(closed);
        }
    }
}

/// Returns a hash on which all receivers of a message agree.
#[inline]
pub fn fingerprint(timestamp_ns: u64, from: u32, sequence: u64) -> u64 {
    let mixed = sequence.rotate_left(24) ^ u64::from(from);
    mix(mix(mixed.wrapping_add(0x9E37_79B9_7F4A_7C15)) ^ timestamp_ns)
}

/// The finaliser of SplitMix64: a bijection that spreads every bit.
#[inline]
fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(timestamp_ns: u64, from: u32, sequence: u64) -> Entry {
        Entry { timestamp_ns, from, index: 0, sequence, seen_ns: 0 }
    }

    #[test]
    fn windows_close_when_stream_passes() {
        let mut log = Log::new(0, 2, 100, 0);
        log.on_delivered(0, entry(1_010, 0, 0));
        log.on_delivered(0, entry(1_020, 1, 0));
        assert_eq!(log.take(None).windows, []);
        log.on_delivered(0, entry(1_310, 0, 1));
        let part = log.take(None);
        assert_eq!((part.windows.len(), part.windows[0].number, part.failed.len()), (1, 10, 0));
        let expected = SenderSum { count: 1, sum: fingerprint(1_010, 0, 0) };
        assert_eq!(part.windows[0].senders[0], expected);
        let part = log.take(Some(1_399));
        assert_eq!((part.windows, part.closed_below), (vec![], 13));
        let part = log.take(Some(1_400));
        assert_eq!((part.windows.len(), part.closed_below), (1, 14));
        assert_eq!(log.faults, StreamFaults::default());
    }

    #[test]
    fn detects_stream_that_does_not_ascend() {
        let mut log = Log::new(0, 2, 100, 0);
        log.on_delivered(0, entry(50, 1, 0));
        log.on_delivered(0, entry(50, 0, 0));
        assert_eq!(log.faults.order, 1, "the sender breaks ties");
        log.on_delivered(0, entry(60, 0, 1));
        log.on_delivered(0, entry(60, 0, 1));
        assert_eq!(log.faults.order, 2, "the same message twice");
    }

    #[test]
    fn detects_causality_violation() {
        let mut log = Log::new(0, 1, 100, 0);
        log.on_delivered(0, Entry { seen_ns: 49, ..entry(50, 0, 0) });
        assert_eq!(log.faults.causality, 0);
        log.on_delivered(0, Entry { seen_ns: 60, ..entry(60, 0, 1) });
        assert_eq!(log.faults.causality, 1);
    }

    #[test]
    fn detects_delivery_above_failure_timestamp() {
        let mut log = Log::new(0, 2, 100, 0);
        log.on_delivered(0, entry(50, 1, 0));
        log.on_process_failed(Failure { process: 1, failed_ns: 51, notified_ns: 0 });
        log.on_delivered(0, entry(60, 0, 0));
        assert_eq!(log.faults.after_failure, 0);
        log.on_delivered(0, entry(61, 1, 1));
        assert_eq!(log.faults.after_failure, 1, "delivered afterwards");
        log.on_process_failed(Failure { process: 0, failed_ns: 60, notified_ns: 0 });
        assert_eq!(log.faults.after_failure, 2, "delivered before");
    }

    #[test]
    fn forgets_scattering_that_was_never_sent() {
        let mut log = Log::new(0, 2, 100, 0);
        log.on_failed(1, None, 7, true);
        log.on_failed(0, None, 7, true);
        assert!(log.unsent.is_empty());
    }

    #[test]
    fn hash_depends_on_order_and_sums_do_not() {
        let of = |first: Entry, second: Entry| {
            let mut log = Log::new(0, 1, 1_000, 0);
            log.on_delivered(0, first);
            log.on_delivered(0, second);
            log.take(Some(1_000)).windows.remove(0)
        };
        let (one, other) = (entry(10, 0, 0), entry(20, 0, 1));
        assert_eq!(of(one, other).senders, of(other, one).senders);
        assert_ne!(of(one, other).order_hash, of(other, one).order_hash);
    }
}
