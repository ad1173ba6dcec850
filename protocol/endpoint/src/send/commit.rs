//! Open reliable scatterings, and the commit promise that follows from them.
//!
//! Scatterings are numbered in the order in which they are sent, which is that of their timestamps.
//! A scattering is complete when each receiver has acknowledged its messages or their recall
//! (docs/design/failure.md, "How is a message taken back?").

use alloc::vec::Vec;

use onepipe_base::{ScatteringId, Timestamp};

use crate::FailureReason;
use onepipe_reliability::SeqDeque;

/// A scattering that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OpenScattering {
    pub id: ScatteringId,
    pub timestamp: Timestamp,
    /// Acknowledgements of messages and recalls that have not arrived.
    acks_missing: u32,
    /// Why it was recalled, if it was.
    pub recalled: Option<FailureReason>,
    to: Targets,
}

/// The targets of a scattering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Targets {
    /// Its only target.
    One(Target),
    /// Its range in [`CommitTracker::targets`].
    Several { first: u64, messages: u32 },
}

/// The destination of one message of a scattering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    /// Index of the connection to the destination.
    pub to: u32,
    pub index: u16,
    /// The outcome of the message was reported to the application.
    pub is_reported: bool,
}

impl Target {
    pub fn new(to: u32, index: u16) -> Self {
        Self { to, index, is_reported: false }
    }
}

/// A message of a recalled scattering that no receiver will deliver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LostMessage {
    pub id: ScatteringId,
    pub timestamp: Timestamp,
    pub target: Target,
    pub reason: FailureReason,
}

/// The open scatterings, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CommitTracker {
    open: SeqDeque<OpenScattering>,
    targets: SeqDeque<Target>,
    /// Messages of recalled scatterings that are complete, to be reported as lost.
    pub lost: Vec<LostMessage>,
}

impl OpenScattering {
    /// Returns whether every acknowledgement has arrived.
    pub fn is_complete(&self) -> bool {
        self.acks_missing == 0
    }
}

impl CommitTracker {
    pub fn new() -> Self {
        Self { open: SeqDeque::new(), targets: SeqDeque::new(), lost: Vec::new() }
    }

    //= spec/failure.md#R1
    /// Returns the timestamp of the oldest incomplete scattering, below which none is open.
    #[inline]
    pub fn oldest(&self) -> Option<Timestamp> {
        self.open.front().map(|open| open.timestamp)
    }

    /// Returns the number of the next scattering.
    #[inline]
    pub fn next_number(&self) -> u64 {
        self.open.next_seq()
    }

    /// Adds a target to the scattering that [`CommitTracker::push`] completes.
    #[inline]
    pub fn push_target(&mut self, target: Target) {
        self.targets.push(target);
    }

    /// Records the sending of a scattering with the last `messages` targets, which needs
    /// `acks_missing` acknowledgements.
    #[inline]
    pub fn push(
        &mut self,
        id: ScatteringId,
        timestamp: Timestamp,
        messages: u32,
        acks_missing: u32,
    ) {
        let to =
            Targets::Several { first: self.targets.next_seq() - u64::from(messages), messages };
        self.open.push(OpenScattering { id, timestamp, acks_missing, recalled: None, to });
        if acks_missing == 0 {
            self.pop_complete();
        }
    }

    /// Records the sending of a scattering with one message; `acks_missing` as in
    /// [`CommitTracker::push`].
    #[inline]
    pub fn push_single(
        &mut self,
        id: ScatteringId,
        timestamp: Timestamp,
        target: Target,
        acks_missing: u32,
    ) {
        let to = Targets::One(target);
        self.open.push(OpenScattering { id, timestamp, acks_missing, recalled: None, to });
        if acks_missing == 0 {
            self.pop_complete();
        }
    }

    /// Returns the scattering with this number if it is recorded.
    pub fn get(&self, number: u64) -> Option<&OpenScattering> {
        (number >= self.open.first_seq() && number < self.open.next_seq())
            .then(|| self.open.get(number))
    }

    /// Returns the numbers of all recorded scatterings, complete ones behind an open one included.
    pub fn numbers(&self) -> core::ops::Range<u64> {
        self.open.first_seq()..self.open.next_seq()
    }

    /// Marks the messages to the connection `to` as reported, and passes the index of each that was
    /// not to `on_first`.
    pub fn report(&mut self, number: u64, to: u32, mut on_first: impl FnMut(u16)) {
        let mut report = |target: &mut Target| {
            if target.to == to && !core::mem::replace(&mut target.is_reported, true) {
                on_first(target.index);
            }
        };
        match &mut self.open.get_mut(number).to {
            Targets::One(target) => report(target),
            Targets::Several { first, messages } => {
                let numbers = *first..*first + u64::from(*messages);
                numbers.for_each(|number| report(self.targets.get_mut(number)));
            }
        }
    }

    /// Copies the targets of a scattering to `into`.
    pub fn targets(&self, number: u64, into: &mut Vec<Target>) {
        into.clear();
        match self.get(number).map(|open| open.to) {
            Some(Targets::One(target)) => into.push(target),
            Some(Targets::Several { first, messages }) => {
                let numbers = first..first + u64::from(messages);
                into.extend(numbers.map(|number| *self.targets.get(number)));
            }
            None => {}
        }
    }

    /// Counts one acknowledgement.
    #[inline]
    pub fn ack(&mut self, number: u64) {
        let open = self.open.get_mut(number);
        debug_assert!(open.acks_missing > 0, "acknowledged twice");
        open.acks_missing -= 1;
        if open.acks_missing == 0 {
            if open.recalled.is_some() {
                self.resolve_recalled(number);
            }
            if number == self.open.first_seq() {
                self.pop_complete();
            }
        }
    }

    /// Queues the messages of a recalled scattering whose outcome was not reported: every receiver
    /// of them has acknowledged the recall.
    #[cold]
    fn resolve_recalled(&mut self, number: u64) {
        let mut targets = Vec::new();
        self.targets(number, &mut targets);
        let OpenScattering { id, timestamp, recalled, .. } = *self.open.get(number);
        let Some(reason) = recalled else { return };
        let unreported = targets.into_iter().filter(|target| !target.is_reported);
        self.lost.extend(unreported.map(|target| LostMessage { id, timestamp, target, reason }));
    }

    /// Expects one more acknowledgement, that of a recall.
    pub fn expect_ack(&mut self, number: u64) {
        self.open.get_mut(number).acks_missing += 1;
    }

    //= spec/failure.md#R8
    /// Marks the scattering as recalled. Returns false if it was recalled before or is complete.
    pub fn recall(&mut self, number: u64, reason: FailureReason) -> bool {
        let is_open = self.get(number).is_some();
        is_open && self.open.get_mut(number).recalled.replace(reason).is_none()
    }

    /// Returns whether no scattering is open.
    #[inline]
    pub fn is_complete(&self) -> bool {
        self.open.is_empty()
    }

    /// Returns the number of acknowledgements that all scatterings together wait for.
    pub fn acks_missing(&self) -> usize {
        let open = self.numbers().map(|number| self.open.get(number));
        open.map(|open| open.acks_missing as usize).sum()
    }

    /// Checks that the oldest scattering is open, that timestamps ascend, and that each scattering
    /// has its targets.
    pub fn check_invariants(&self) {
        let is_open = self.open.front().is_none_or(|open| open.acks_missing > 0);
        assert!(is_open, "the commit promise follows the oldest open scattering");
        let (mut last, mut next_target) = (None, self.targets.first_seq());
        for open in self.numbers().map(|number| self.open.get(number)) {
            assert!(last < Some(open.timestamp), "scatterings are sent in the order of timestamps");
            last = Some(open.timestamp);
            if let Targets::Several { first, messages } = open.to {
                assert_eq!(first, next_target, "targets lie in the order of scatterings");
                next_target += u64::from(messages);
            }
        }
        assert_eq!(self.targets.next_seq(), next_target, "each target belongs to a scattering");
    }

    #[inline]
    fn pop_complete(&mut self) {
        while let Some(open) = self.open.front().filter(|open| open.acks_missing == 0) {
            if let Targets::Several { messages, .. } = open.to {
                self.targets.pop_front(u64::from(messages));
            }
            self.open.pop_front(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn commit(acks_missing: &[u32]) -> CommitTracker {
        let mut commit = CommitTracker::new();
        for (number, &acks_missing) in acks_missing.iter().enumerate() {
            for index in 0..acks_missing {
                commit.push_target(Target::new(index, index as u16));
            }
            let id = ScatteringId(number as u64);
            commit.push(id, Timestamp::from_ns(10 * number as u64), acks_missing, acks_missing);
        }
        commit
    }

    //= spec/failure.md#R1
    #[test]
    fn oldest_open_scattering_bounds_the_promise() {
        let mut commit = commit(&[2, 1, 0]);
        commit.ack(1);
        assert_eq!(commit.oldest(), Some(Timestamp::from_ns(0)));
        commit.ack(0);
        assert_eq!(commit.oldest(), Some(Timestamp::from_ns(0)));
        commit.ack(0);
        assert!(commit.is_complete() && commit.get(0).is_none());
    }

    //= spec/failure.md#R8
    #[test]
    fn recalled_scattering_stays_open_until_recalls_are_acked() {
        let mut commit = commit(&[2, 1]);
        let mut targets = Vec::new();
        commit.targets(0, &mut targets);
        assert_eq!(targets.len(), 2);
        let mut recall = |number| commit.recall(number, FailureReason::Rejected);
        assert!(recall(0) && !recall(0), "once");
        commit.expect_ack(0);
        commit.ack(0);
        commit.ack(0);
        assert_eq!(commit.oldest(), Some(Timestamp::from_ns(0)));
        commit.ack(0);
        assert_eq!(commit.oldest(), Some(Timestamp::from_ns(10)));
        assert!(!commit.recall(0, FailureReason::Rejected), "it is complete");
    }

    //= spec/failure.md#R56
    #[test]
    fn messages_of_a_recalled_scattering_are_lost_when_complete() {
        let mut commit = commit(&[2, 1]);
        assert!(commit.recall(0, FailureReason::NoController));
        let mut reported = Vec::new();
        (0..2).for_each(|_| commit.report(0, 1, |index| reported.push(index)));
        assert_eq!(reported, [1], "once");
        commit.ack(0);
        assert!(commit.lost.is_empty());
        commit.ack(0);
        let lost: Vec<_> = commit.lost.iter().map(|lost| (lost.id.0, lost.target.index)).collect();
        assert_eq!((lost, commit.lost[0].reason), (vec![(0, 0)], FailureReason::NoController));
    }

    #[test]
    fn single_and_multiple_targets_behave_alike() {
        let mut commit = CommitTracker::new();
        let target = |to| Target::new(to, 0);
        let (mut targets, timestamps) = (Vec::new(), Timestamp::from_ns);
        commit.push_target(target(5));
        commit.push_target(target(6));
        commit.push(ScatteringId(0), timestamps(0), 2, 2);
        commit.push_single(ScatteringId(1), timestamps(10), target(7), 1);
        commit.push_target(target(8));
        commit.push(ScatteringId(2), timestamps(20), 1, 1);
        for (number, expected) in [(0, &[5, 6][..]), (1, &[7]), (2, &[8])] {
            commit.targets(number, &mut targets);
            assert!(targets.iter().map(|target| target.to).eq(expected.iter().copied()));
        }
        for number in [1, 0, 0] {
            commit.ack(number);
        }
        assert_eq!(commit.numbers(), 2..3);
        commit.targets(2, &mut targets);
        assert_eq!(targets, [target(8)]);
        commit.push_single(ScatteringId(3), timestamps(30), target(9), 0);
        commit.ack(2);
        assert!(commit.is_complete());
    }

    #[test]
    fn scattering_without_remote_targets_is_complete() {
        let mut commit = commit(&[0]);
        assert!(commit.is_complete());
        assert_eq!(commit.next_number(), 1);
        commit.push_target(Target::new(0, 0));
        commit.push(ScatteringId(9), Timestamp::from_ns(99), 1, 1);
        assert_eq!(commit.get(1).map(|open| open.id), Some(ScatteringId(9)));
    }
}
