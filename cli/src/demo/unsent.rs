//! Best-effort messages that fail before they are sent.
//!
//! A message to a process that does not answer fails at once, without a timestamp, and the rest of
//! its scattering is sent without it. So the others deliver messages of a scattering of which this
//! receiver lacks its own. The loss can only be logged with the timestamp, which the sender learns
//! when the scattering's message to itself comes back. (Failures are reported before deliveries.)

use std::collections::BTreeMap;

use super::log::Log;

/// Destinations of unsent messages, by the number of their scattering.
#[derive(Clone, Debug, Default)]
pub struct Unsent {
    waiting: BTreeMap<u64, Vec<u32>>,
}

impl Unsent {
    /// Records that the message of scattering `sequence` from `from` to `to` will not be sent.
    pub fn on_failed(&mut self, from: u32, to: u32, sequence: u64) {
        if to == from {
            // The scattering never comes back, so no compared log contains it.
            self.waiting.remove(&sequence);
            return;
        }
        self.waiting.entry(sequence).or_default().push(to);
    }

    /// Records that the rest of scattering `sequence` was sent with this timestamp.
    #[inline]
    pub fn on_returned(&mut self, log: &mut Log, from: u32, sequence: u64, timestamp_ns: u64) {
        if self.waiting.is_empty() {
            return;
        }
        for to in self.waiting.remove(&sequence).into_iter().flatten() {
            log.on_failed(from, to, timestamp_ns, sequence, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::{Checker, Verdict};
    use super::super::log::Entry;
    use super::*;

    const WINDOW_NS: u64 = 100;

    /// Process 0 scatters twice to itself and process 1; the second message to 1 fails before it is
    /// sent.
    fn verdict(is_noted: bool) -> Verdict {
        let (mut log, mut other) = (Log::new(WINDOW_NS, 2), Log::new(WINDOW_NS, 2));
        let mut unsent = Unsent::default();
        let entry = |sequence| Entry {
            timestamp_ns: 10 * (sequence + 1),
            from: 0,
            index: 0,
            sequence,
            seen_ns: 0,
        };
        if is_noted {
            unsent.on_failed(0, 1, 1);
        }
        for sequence in [0, 1] {
            let entry = entry(sequence);
            unsent.on_returned(&mut log, 0, sequence, entry.timestamp_ns);
            log.on_delivered(entry);
        }
        other.on_delivered(entry(0));
        let mut checker = Checker::new(WINDOW_NS, 2);
        for (process, log) in [&mut log, &mut other].into_iter().enumerate() {
            log.on_barrier(WINDOW_NS);
            let (windows, failures) = log.take();
            checker.add(process, windows, failures, log.closed_below());
        }
        checker.advance();
        checker.finish()
    }

    #[test]
    fn unsent_message_is_reported_as_lost() {
        let noted = verdict(true);
        assert_eq!((noted.violations, noted.lost), (0, 1), "{noted:?}");
        assert_eq!(verdict(false).violations, 1, "the check can fail");
    }

    #[test]
    fn forgets_scattering_that_never_left() {
        let mut unsent = Unsent::default();
        unsent.on_failed(0, 1, 7);
        unsent.on_failed(0, 0, 7);
        assert!(unsent.waiting.is_empty());
    }
}
