//! Recalls that failed receivers cannot take, on their way to the controllers' record.

use alloc::collections::VecDeque;

use onepipe_base::{Backoff, Controllers, Mono, Psn};
use onepipe_wire::{Opcode, UNDELIVERABLE_LEN, Undeliverable};

use super::ControlFrame;
use super::round::Round;

/// How many recalls wait at most for being recorded (384 KiB). Whoever has more must wait.
pub(super) const UNDELIVERABLE_MAX: usize = 1 << 14;

/// What is not recorded yet. One batch at a time is on the way, repeated until it is recorded.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Undeliverables {
    waiting: VecDeque<Undeliverable>,
    /// How many of them, from the front, are the batch on the way. 0: none is.
    batch: usize,
    /// The batch's number.
    psn: Psn,
    /// Recorded, and not told yet.
    recorded: usize,
    pace: Backoff,
    round: Round,
}

impl Undeliverables {
    /// `first` differs from life to life, or the record of a former life's batch would be taken for
    /// this one's.
    pub fn new(controllers: Controllers, pace: Backoff, first: Psn) -> Self {
        let (waiting, round) = (VecDeque::new(), Round::new(controllers));
        Self { waiting, batch: 0, psn: first, recorded: 0, pace, round }
    }

    /// Answers false when too many are waiting.
    pub fn push(&mut self, recall: Undeliverable) -> bool {
        let has_room = self.waiting.len() < UNDELIVERABLE_MAX;
        if has_room {
            self.waiting.push_back(recall);
        }
        has_room
    }

    /// How many are not recorded yet.
    pub fn pending(&self) -> usize {
        self.waiting.len()
    }

    /// How many have been recorded since this was last asked, in the order of pushing.
    #[inline]
    pub fn take_recorded(&mut self) -> usize {
        core::mem::take(&mut self.recorded)
    }

    pub fn wants_transmit(&self) -> bool {
        (self.batch == 0 && !self.waiting.is_empty()) || self.round.turn().is_some()
    }

    /// When the batch is to be repeated.
    pub fn deadline(&self) -> Option<Mono> {
        if self.batch > 0 { self.pace.due() } else { None }
    }

    /// Writes the batch for the next controller.
    pub fn write(&mut self, now: Mono, payload: &mut [u8]) -> Option<ControlFrame> {
        if self.batch == 0 {
            self.batch = self.waiting.len().min(payload.len() / UNDELIVERABLE_LEN);
            if self.batch == 0 {
                return None;
            }
            self.pace.on_change(now);
        }
        if self.pace.take(now) {
            self.round.start();
        }
        let to = self.round.turn()?;
        self.round.pass();
        let bytes = Undeliverable::write(payload, self.waiting.iter().take(self.batch).copied());
        Some(ControlFrame::to(to, Opcode::Undeliverable, self.psn, bytes))
    }

    /// A controller has recorded the batch `psn`. Answers whether it was on the way.
    pub fn on_recorded(&mut self, psn: Psn) -> bool {
        let is_ours = self.batch > 0 && psn == self.psn;
        if is_ours {
            self.waiting.drain(..self.batch);
            self.recorded += self.batch;
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
    fn a_batch_is_repeated_to_every_controller_until_it_is_recorded() {
        let controllers = Controllers { first: ProcessId(60), count: 2 };
        let mut all = Undeliverables::new(controllers, Backoff::new(10, 20), Psn(u32::MAX));
        let mut payload = [0; 40];
        let mut sent = |all: &mut Undeliverables, ns| {
            let mut frames = alloc::vec::Vec::new();
            while let Some(frame) = all.write(Mono::from_ns(ns), &mut payload) {
                let entries = &payload[..frame.bytes];
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
        assert!(!all.on_recorded(Psn(0)) && all.on_recorded(Psn(u32::MAX)));
        assert!(!all.on_recorded(Psn(u32::MAX)) && !all.on_recorded(Psn(0)));
        assert_eq!((all.pending(), all.deadline()), (2, None));
        assert_eq!((all.take_recorded(), all.take_recorded()), (2, 0));
        assert!(all.wants_transmit());
        assert_eq!(sent(&mut all, 111)[0], (60, 0, alloc::vec![7, 8]));
        assert!(all.on_recorded(Psn(0)) && !all.wants_transmit() && all.pending() == 0);
    }

    #[test]
    fn what_waits_is_bounded() {
        let controllers = Controllers { first: ProcessId(60), count: 1 };
        let mut all = Undeliverables::new(controllers, Backoff::new(10, 20), Psn(0));
        for ns in 0..UNDELIVERABLE_MAX as u64 {
            assert!(all.push(recall(ns)));
        }
        assert!(!all.push(recall(0)));
    }
}
