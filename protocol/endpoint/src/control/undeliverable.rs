//! Recalls to failed receivers, to be recorded by the controllers.

use alloc::collections::VecDeque;

use onepipe_base::{Backoff, Controllers, Mono, Psn};
use onepipe_wire::{Opcode, UNDELIVERABLE_LEN, Undeliverable};

use super::ControlFrame;
use super::round_robin::RoundRobin;

/// Limit on queued recalls (384 KiB); senders of further recalls must wait.
pub(super) const UNDELIVERABLE_MAX: usize = 1 << 14;

/// Recalls that are not acknowledged as recorded. One batch at a time is in flight, and is
/// retransmitted until it is acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct UndeliverableQueue {
    waiting: VecDeque<Undeliverable>,
    /// Length of the batch in flight, from the front of the queue. 0: none.
    batch: usize,
    /// Number of the batch.
    psn: Psn,
    /// Recalls acknowledged and not taken.
    acked: usize,
    backoff: Backoff,
    round: RoundRobin,
}

impl UndeliverableQueue {
    /// `first` must differ between incarnations; otherwise the acknowledgement of a previous
    /// incarnation's batch would be taken for this one's.
    pub fn new(controllers: Controllers, backoff: Backoff, first: Psn) -> Self {
        let (waiting, round) = (VecDeque::new(), RoundRobin::new(controllers));
        Self { waiting, batch: 0, psn: first, acked: 0, backoff, round }
    }

    /// Returns false if the queue is full.
    pub fn push(&mut self, recall: Undeliverable) -> bool {
        let has_capacity = self.waiting.len() < UNDELIVERABLE_MAX;
        if has_capacity {
            self.waiting.push_back(recall);
        }
        has_capacity
    }

    /// Returns the number of recalls that are not acknowledged, or whose acknowledgement was not
    /// taken.
    pub fn recording(&self) -> usize {
        self.waiting.len() + self.acked
    }

    /// Checks that the batch in flight is queued, within the limit.
    pub fn check_invariants(&self) {
        self.round.check_invariants();
        assert!(self.waiting.len() <= UNDELIVERABLE_MAX, "queued recalls are bounded");
        assert!(self.batch <= self.waiting.len(), "the batch in flight is queued");
        assert!(self.batch > 0 || self.round.current().is_none(), "a round sends a batch");
        assert!(self.batch == 0 || self.backoff.due().is_some(), "a batch is repeated");
    }

    /// Returns the number of recalls that are not acknowledged.
    pub fn pending(&self) -> usize {
        self.waiting.len()
    }

    /// Takes the number of recalls acknowledged since the last call, in order of pushing.
    #[inline]
    pub fn take_acked_undeliverable(&mut self) -> usize {
        core::mem::take(&mut self.acked)
    }

    pub fn wants_transmit(&self) -> bool {
        (self.batch == 0 && !self.waiting.is_empty()) || self.round.current().is_some()
    }

    /// Returns when the batch is to be retransmitted.
    pub fn deadline(&self) -> Option<Mono> {
        if self.batch > 0 { self.backoff.due() } else { None }
    }

    /// Writes the batch for the next controller.
    pub fn write(&mut self, now: Mono, payload: &mut [u8]) -> Option<ControlFrame> {
        if self.batch == 0 {
            self.batch = self.waiting.len().min(payload.len() / UNDELIVERABLE_LEN);
            if self.batch == 0 {
                return None;
            }
            self.backoff.on_change(now);
        }
        if self.backoff.take(now) {
            self.round.start();
        }
        let to = self.round.current()?;
        self.round.advance();
        let payload_len =
            Undeliverable::write(payload, self.waiting.iter().take(self.batch).copied());
        Some(ControlFrame::to(to, Opcode::Undeliverable, self.psn, payload_len))
    }

    /// Handles the acknowledgement of batch `psn`. Returns whether that batch was in flight.
    pub fn on_undeliverable_ack(&mut self, psn: Psn) -> bool {
        let is_ours = self.batch > 0 && psn == self.psn;
        if is_ours {
            self.waiting.drain(..self.batch);
            self.acked += self.batch;
            self.batch = 0;
            self.psn = self.psn.plus(1);
            self.round.stop();
        }
        is_ours
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onepipe_base::{Incarnation, ProcessId, Timestamp};

    fn recall(ns: u64) -> Undeliverable {
        let timestamp = Timestamp::from_ns(ns);
        Undeliverable { to: ProcessId(3), incarnation: Incarnation(1), timestamp }
    }

    #[test]
    fn batch_is_retransmitted_until_acked() {
        let controllers = Controllers { first: ProcessId(60), count: 2 };
        let mut all = UndeliverableQueue::new(controllers, Backoff::new(10, 20), Psn(u32::MAX));
        let mut payload = [0; 40];
        let mut sent = |all: &mut UndeliverableQueue, ns| {
            let mut frames = alloc::vec::Vec::new();
            while let Some(frame) = all.write(Mono::from_ns(ns), &mut payload) {
                let entries = &payload[..frame.payload_len];
                let read = Undeliverable::parse(entries, Timestamp::from_ns(0));
                let stamps = read.expect("written above").map(|entry| entry.timestamp.as_ns());
                frames.push((frame.to.0, frame.psn.0, stamps.collect::<alloc::vec::Vec<_>>()));
            }
            frames
        };
        for ns in [5, 6, 7] {
            assert!(all.push(recall(ns)));
        }
        let first = [(60, u32::MAX, alloc::vec![5, 6]), (61, u32::MAX, alloc::vec![5, 6])];
        assert_eq!(sent(&mut all, 100), first);
        assert!(all.push(recall(8)));
        assert_eq!(all.deadline(), Some(Mono::from_ns(110)));
        assert_eq!(sent(&mut all, 109), []);
        assert_eq!(sent(&mut all, 110), first, "the batch does not grow");
        assert!(!all.on_undeliverable_ack(Psn(0)) && all.on_undeliverable_ack(Psn(u32::MAX)));
        assert!(!all.on_undeliverable_ack(Psn(u32::MAX)) && !all.on_undeliverable_ack(Psn(0)));
        assert_eq!((all.pending(), all.deadline()), (2, None));
        assert_eq!((all.take_acked_undeliverable(), all.take_acked_undeliverable()), (2, 0));
        assert!(all.wants_transmit());
        assert_eq!(sent(&mut all, 111)[0], (60, 0, alloc::vec![7, 8]));
        assert!(all.on_undeliverable_ack(Psn(0)) && !all.wants_transmit() && all.pending() == 0);
    }

    #[test]
    fn queue_is_bounded() {
        let controllers = Controllers { first: ProcessId(60), count: 1 };
        let mut all = UndeliverableQueue::new(controllers, Backoff::new(10, 20), Psn(0));
        for ns in 0..UNDELIVERABLE_MAX as u64 {
            assert!(all.push(recall(ns)));
        }
        assert!(!all.push(recall(0)));
    }
}
