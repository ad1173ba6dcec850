//! Reliable scatterings whose fate is open, and the commit promise that follows from them.
//!
//! Scatterings are numbered in the order of their departure, which is that of their timestamps. A
//! scattering is settled when each of its receivers has acknowledged its messages, or their recall
//! (design: failure.md).

use alloc::vec::Vec;

use onepipe_base::{ScatteringId, Timestamp};

use crate::numbered::Numbered;

/// A scattering that has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Open {
    pub id: ScatteringId,
    pub timestamp: Timestamp,
    /// Acknowledgements that are missing: of messages, and of recalls.
    missing: u32,
    pub is_recalled: bool,
    to: To,
}

/// Where the messages of a scattering go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum To {
    /// Its only one.
    One(Target),
    /// Its messages among `targets`.
    Several { first: u64, messages: u32 },
}

/// Where one message of a scattering goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    /// Index of the destination among the connections.
    pub to: u32,
    pub index: u16,
}

/// The open scatterings, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Commit {
    open: Numbered<Open>,
    targets: Numbered<Target>,
}

impl Open {
    /// Whether nothing is waited for any more.
    pub fn is_settled(&self) -> bool {
        self.missing == 0
    }
}

impl Commit {
    pub fn new() -> Self {
        Self { open: Numbered::new(), targets: Numbered::new() }
    }

    /// The timestamp of the oldest scattering that is not settled: nothing below it is open.
    #[inline]
    pub fn oldest(&self) -> Option<Timestamp> {
        self.open.front().map(|open| open.timestamp)
    }

    /// The number that the next scattering will have.
    #[inline]
    pub fn next(&self) -> u64 {
        self.open.next()
    }

    /// The scattering under way has a message to `target`.
    #[inline]
    pub fn push_target(&mut self, target: Target) {
        self.targets.push(target);
    }

    /// The scattering of the last `messages` targets leaves, and `missing` acknowledgements are to
    /// be waited for.
    #[inline]
    pub fn push(&mut self, id: ScatteringId, timestamp: Timestamp, messages: u32, missing: u32) {
        let to = To::Several { first: self.targets.next() - u64::from(messages), messages };
        self.open.push(Open { id, timestamp, missing, is_recalled: false, to });
        if missing == 0 {
            self.forget_settled();
        }
    }

    /// A scattering of one message leaves; `missing` as in [`Commit::push`].
    #[inline]
    pub fn push_single(
        &mut self,
        id: ScatteringId,
        timestamp: Timestamp,
        target: Target,
        missing: u32,
    ) {
        let to = To::One(target);
        self.open.push(Open { id, timestamp, missing, is_recalled: false, to });
        if missing == 0 {
            self.forget_settled();
        }
    }

    /// The scattering with this number, if it is still open.
    pub fn get(&self, number: u64) -> Option<&Open> {
        (number >= self.open.first() && number < self.open.next()).then(|| self.open.get(number))
    }

    /// The numbers of those that are kept, settled ones behind an open one included.
    pub fn numbers(&self) -> core::ops::Range<u64> {
        self.open.first()..self.open.next()
    }

    /// Its targets.
    pub fn targets(&self, number: u64, into: &mut Vec<Target>) {
        into.clear();
        match self.get(number).map(|open| open.to) {
            Some(To::One(target)) => into.push(target),
            Some(To::Several { first, messages }) => {
                let numbers = first..first + u64::from(messages);
                into.extend(numbers.map(|number| *self.targets.get(number)));
            }
            None => {}
        }
    }

    /// One acknowledgement has come.
    #[inline]
    pub fn settle(&mut self, number: u64) {
        let open = self.open.get_mut(number);
        debug_assert!(open.missing > 0, "settled twice");
        open.missing -= 1;
        if open.missing == 0 && number == self.open.first() {
            self.forget_settled();
        }
    }

    /// One more acknowledgement is to be waited for: that of a recall.
    pub fn expect(&mut self, number: u64) {
        self.open.get_mut(number).missing += 1;
    }

    /// Marks the scattering as recalled. Answers false if it was, or is settled.
    pub fn recall(&mut self, number: u64) -> bool {
        let is_open = self.get(number).is_some();
        is_open && !core::mem::replace(&mut self.open.get_mut(number).is_recalled, true)
    }

    /// Whether all are settled.
    #[inline]
    pub fn is_settled(&self) -> bool {
        self.open.is_empty()
    }

    #[inline]
    fn forget_settled(&mut self) {
        while let Some(open) = self.open.front().filter(|open| open.missing == 0) {
            if let To::Several { messages, .. } = open.to {
                self.targets.forget(u64::from(messages));
            }
            self.open.forget(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(missing: &[u32]) -> Commit {
        let mut commit = Commit::new();
        for (number, &missing) in missing.iter().enumerate() {
            for index in 0..missing {
                commit.push_target(Target { to: index, index: index as u16 });
            }
            let id = ScatteringId(number as u64);
            commit.push(id, Timestamp::from_ns(10 * number as u64), missing, missing);
        }
        commit
    }

    #[test]
    fn the_oldest_open_scattering_holds_the_promise() {
        let mut commit = commit(&[2, 1, 0]);
        commit.settle(1);
        assert_eq!(commit.oldest(), Some(Timestamp::from_ns(0)));
        commit.settle(0);
        assert_eq!(commit.oldest(), Some(Timestamp::from_ns(0)));
        commit.settle(0);
        assert!(commit.is_settled() && commit.get(0).is_none());
    }

    #[test]
    fn a_recalled_scattering_stays_open_until_its_recalls_are_acknowledged() {
        let mut commit = commit(&[2, 1]);
        let mut targets = Vec::new();
        commit.targets(0, &mut targets);
        assert_eq!(targets.len(), 2);
        assert!(commit.recall(0) && !commit.recall(0), "once");
        commit.expect(0);
        commit.settle(0);
        commit.settle(0);
        assert_eq!(commit.oldest(), Some(Timestamp::from_ns(0)));
        commit.settle(0);
        assert_eq!(commit.oldest(), Some(Timestamp::from_ns(10)));
        assert!(!commit.recall(0), "it is settled");
    }

    #[test]
    fn the_only_target_of_a_scattering_is_as_good_as_one_of_several() {
        let mut commit = Commit::new();
        let target = |to| Target { to, index: 0 };
        let (mut targets, stamp) = (Vec::new(), Timestamp::from_ns);
        commit.push_target(target(5));
        commit.push_target(target(6));
        commit.push(ScatteringId(0), stamp(0), 2, 2);
        commit.push_single(ScatteringId(1), stamp(10), target(7), 1);
        commit.push_target(target(8));
        commit.push(ScatteringId(2), stamp(20), 1, 1);
        for (number, expected) in [(0, &[5, 6][..]), (1, &[7]), (2, &[8])] {
            commit.targets(number, &mut targets);
            assert!(targets.iter().map(|target| target.to).eq(expected.iter().copied()));
        }
        for number in [1, 0, 0] {
            commit.settle(number);
        }
        assert_eq!(commit.numbers(), 2..3);
        commit.targets(2, &mut targets);
        assert_eq!(targets, [target(8)]);
        commit.push_single(ScatteringId(3), stamp(30), target(9), 0);
        commit.settle(2);
        assert!(commit.is_settled());
    }

    #[test]
    fn a_scattering_that_waits_for_nobody_is_settled_at_once() {
        let mut commit = commit(&[0]);
        assert!(commit.is_settled());
        assert_eq!(commit.next(), 1);
        commit.push_target(Target { to: 0, index: 0 });
        commit.push(ScatteringId(9), Timestamp::from_ns(99), 1, 1);
        assert_eq!(commit.get(1).map(|open| open.id), Some(ScatteringId(9)));
    }
}
