//! Recalls that failed receivers cannot take, on their way to the controllers' record.

use alloc::collections::VecDeque;

use onepipe_base::{Backoff, Controllers, Mono, Psn};
use onepipe_wire::{Opcode, UNDELIVERABLE_LEN, Undeliverable};

use super::ControlFrame;
use super::round_robin::RoundRobin;

/// How many recalls wait at most for being acked (384 KiB). Whoever has more must wait.
pub(super) const UNDELIVERABLE_MAX: usize = 1 << 14;

/// What is not acked yet. One batch at a time is on the way, repeated until it is acked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct UndeliverableQueue {
    waiting: VecDeque<Undeliverable>,
    /// How many of them, from the front, are the batch on the way. 0: none is.
    batch: usize,
    /// The batch's number.
    psn: Psn,
    /// Recorded, and not told yet.
    acked: usize,
    backoff: Backoff,
    round: RoundRobin,
}

impl UndeliverableQueue {
    /// `first` differs from life to life, or the record of a former life's batch would be taken for
    /// this one's.
    pub fn new(controllers: Controllers, backoff: Backoff, first: Psn) -> Self {
        let (waiting, round) = (VecDeque::new(), RoundRobin::new(controllers));
        Self { waiting, batch: 0, psn: first, acked: 0, backoff, round }
    }

    /// Answers false when too many are waiting.
    pub fn push(&mut self, recall: Undeliverable) -> bool {
        let has_capacity = self.waiting.len() < UNDELIVERABLE_MAX;
        if has_capacity {
            self.waiting.push_back(recall);
        }
        has_capacity
    }

    /// How many are not acked yet.
    pub fn pending(&self) -> usize {
        self.waiting.len()
    }

    /// How many have been acked since this was last asked, in the order of pushing.
    #[inline]
    pub fn take_acked_undeliverable(&mut self) -> usize {
        core::mem::take(&mut self.acked)
    }

    pub fn wants_transmit(&self) -> bool {
        (self.batch == 0 && !self.waiting.is_empty()) || self.round.current().is_some()
    }

    /// When the batch is to be repeated.
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

    /// A controller has acked the batch `psn`. Answers whether it was on the way.
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
                let stamps = read.expect("just written").map(|entry| entry.timestamp.as_ns());
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
        assert_eq!(sent(&mut all, 110), first, "the same, whatever has come since");
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
