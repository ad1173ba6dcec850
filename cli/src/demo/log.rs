//! Log of the stream of one process, compact enough to be compared by the parent.
//!
//! Time is divided into windows by the *timestamps* of messages, so that all processes divide it at
//! the same points. For each window a log keeps, per sender, the number of messages and the sum of
//! their fingerprints (losses can be added to such a sum), and for the whole window a hash that
//! depends on the order.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Number of messages, and the sum of their fingerprints modulo 2^64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SenderSum {
    /// Number of messages.
    pub count: u64,
    /// Sum of their fingerprints.
    pub sum: u64,
}

impl SenderSum {
    /// Adds a message.
    pub fn add(&mut self, fingerprint: u64) {
        self.count += 1;
        self.sum = self.sum.wrapping_add(fingerprint);
    }

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

/// Failed messages of one window to one process, as reported to their sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendFailures {
    /// Window of their timestamps.
    pub window: u64,
    /// Process that should have received the messages.
    pub to: u32,
    /// Reported lost: will never be delivered.
    pub lost: SenderSum,
    /// Reported with unknown outcome.
    pub unknown: SenderSum,
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
}

impl StreamFaults {
    /// Returns the number of all faults.
    pub fn count(&self) -> u64 {
        self.order + self.causality + self.payload
    }
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

/// Log of one process.
#[derive(Clone, Debug)]
pub struct Log {
    window_ns: u64,
    open: Window,
    /// Timestamp, sender and index of the last delivery.
    last: Option<(u64, u32, u16)>,
    closed: Vec<Window>,
    /// Sums of the lost messages and of those with unknown outcome, by window and receiver.
    failures: BTreeMap<(u64, u32), (SenderSum, SenderSum)>,
    /// Faults so far.
    pub faults: StreamFaults,
}

impl Log {
    /// Creates an empty log for `processes` senders.
    pub fn new(window_ns: u64, processes: usize) -> Self {
        let open =
            Window { number: 0, order_hash: 0, senders: vec![SenderSum::default(); processes] };
        Self {
            window_ns,
            open,
            last: None,
            closed: Vec::new(),
            failures: BTreeMap::new(),
            faults: StreamFaults::default(),
        }
    }

    /// Adds the next message of the stream.
    #[inline]
    pub fn on_delivered(&mut self, entry: Entry) {
        let key = (entry.timestamp_ns, entry.from, entry.index);
        let is_below = entry.timestamp_ns / self.window_ns < self.open.number;
        self.faults.order += u64::from(is_below || self.last.is_some_and(|last| key <= last));
        self.faults.causality += u64::from(entry.timestamp_ns <= entry.seen_ns);
        let number = entry.timestamp_ns / self.window_ns;
        if number > self.open.number {
            self.close(number);
        }
        self.last = Some(key);
        let fingerprint = fingerprint(entry.timestamp_ns, entry.from, entry.sequence);
        let order_hash = self.open.order_hash.rotate_left(5) ^ fingerprint;
        self.open.order_hash = order_hash.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        match self.open.senders.get_mut(entry.from as usize) {
            Some(sender_sum) => sender_sum.add(fingerprint),
            None => self.faults.payload += 1,
        }
    }

    /// Records that a message of this process was reported lost, or with unknown outcome.
    pub fn on_failed(
        &mut self,
        from: u32,
        to: u32,
        timestamp_ns: u64,
        sequence: u64,
        is_lost: bool,
    ) {
        let failures = self.failures.entry((timestamp_ns / self.window_ns, to)).or_default();
        let sender_sum = if is_lost { &mut failures.0 } else { &mut failures.1 };
        sender_sum.add(fingerprint(timestamp_ns, from, sequence));
    }

    /// Records that everything below this timestamp has been delivered, and so closes the windows
    /// below it.
    pub fn on_barrier(&mut self, barrier_ns: u64) {
        let number = barrier_ns / self.window_ns;
        if number > self.open.number {
            self.close(number);
        }
    }

    /// Takes the complete windows, in order, and the failures reported since the last call.
    pub fn take(&mut self) -> (Vec<Window>, Vec<SendFailures>) {
        let failures = std::mem::take(&mut self.failures).into_iter();
        let failures = failures.map(|((window, to), (lost, unknown))| SendFailures {
            window,
            to,
            lost,
            unknown,
        });
        (std::mem::take(&mut self.closed), failures.collect())
    }

    /// Returns the bound below which every window is complete.
    pub fn closed_below(&self) -> u64 {
        self.open.number
    }

    fn close(&mut self, number: u64) {
        let senders = vec![SenderSum::default(); self.open.senders.len()];
        let next = Window { number, order_hash: 0, senders };
        let closed = std::mem::replace(&mut self.open, next);
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
        let mut log = Log::new(100, 2);
        log.on_delivered(entry(1_010, 0, 0));
        log.on_delivered(entry(1_020, 1, 0));
        assert_eq!(log.take().0, []);
        log.on_delivered(entry(1_310, 0, 1));
        let (windows, failures) = log.take();
        assert_eq!((windows.len(), windows[0].number, failures.len()), (1, 10, 0));
        assert_eq!(windows[0].senders[0], SenderSum { count: 1, sum: fingerprint(1_010, 0, 0) });
        log.on_barrier(1_399);
        assert_eq!((log.take().0, log.closed_below()), (vec![], 13));
        log.on_barrier(1_400);
        assert_eq!((log.take().0.len(), log.closed_below()), (1, 14));
        assert_eq!(log.faults, StreamFaults::default());
    }

    #[test]
    fn detects_stream_that_does_not_ascend() {
        let mut log = Log::new(100, 2);
        log.on_delivered(entry(50, 1, 0));
        log.on_delivered(entry(50, 0, 0));
        assert_eq!(log.faults.order, 1, "the sender breaks ties");
        log.on_delivered(entry(60, 0, 1));
        log.on_delivered(entry(60, 0, 1));
        assert_eq!(log.faults.order, 2, "the same message twice");
    }

    #[test]
    fn detects_causality_violation() {
        let mut log = Log::new(100, 1);
        log.on_delivered(Entry { seen_ns: 49, ..entry(50, 0, 0) });
        assert_eq!(log.faults.causality, 0);
        log.on_delivered(Entry { seen_ns: 60, ..entry(60, 0, 1) });
        assert_eq!(log.faults.causality, 1);
    }

    #[test]
    fn hash_depends_on_order_and_sums_do_not() {
        let of = |first: Entry, second: Entry| {
            let mut log = Log::new(1_000, 1);
            log.on_delivered(first);
            log.on_delivered(second);
            log.on_barrier(1_000);
            log.take().0.remove(0)
        };
        let (one, other) = (entry(10, 0, 0), entry(20, 0, 1));
        assert_eq!(of(one, other).senders, of(other, one).senders);
        assert_ne!(of(one, other).order_hash, of(other, one).order_hash);
    }
}
