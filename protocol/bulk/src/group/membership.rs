//! Membership: the members that have failed, and the outcome of the group.

use alloc::vec::Vec;

use onepipe_reliability::BitSet;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::event::{Failure, Outcome};

/// Live and failed members of a group, and the outcome once the group has ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Membership {
    own: u32,
    members: u32,
    /// Failures in the order in which this member learned of them.
    failures: Vec<Failure>,
    has_failed: BitSet,
    /// Digest of the set of failed members; 0 while all members are live.
    view: u64,
    outcome: Option<Outcome>,
}

impl Membership {
    /// Returns a membership in which all members are live.
    pub fn new(own: u32, members: u32) -> Self {
        let (failures, has_failed) = (Vec::new(), BitSet::new(members));
        Self { own, members, failures, has_failed, view: 0, outcome: None }
    }

    #[inline]
    pub fn failures(&self) -> &[Failure] {
        &self.failures
    }

    #[inline]
    pub fn has_failures(&self) -> bool {
        !self.failures.is_empty()
    }

    #[inline]
    pub fn has_failed(&self, rank: u32) -> bool {
        self.has_failed.has(rank)
    }

    #[inline]
    pub fn view(&self) -> u64 {
        self.view
    }

    #[inline]
    pub fn outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    /// Returns whether the group has ended for this member.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.outcome.is_some()
    }

    /// Returns whether the leader has closed the group.
    pub fn is_closed(&self) -> bool {
        matches!(self.outcome, Some(Outcome::Complete | Outcome::Failed))
    }

    /// Returns whether the others have excluded this member.
    pub fn is_refused(&self) -> bool {
        matches!(self.outcome, Some(Outcome::Refused(_)))
    }

    /// Returns the rank of the leader: the first live member. Initially this is the root.
    pub fn leader(&self) -> u32 {
        (0..self.members).find(|rank| !self.has_failed.has(*rank)).unwrap_or(0)
    }

    pub fn is_leader(&self) -> bool {
        self.leader() == self.own
    }

    /// Returns whether `rank` is another member that has not failed.
    #[inline]
    pub fn is_live_peer(&self, rank: u32) -> bool {
        rank != self.own && !self.has_failed.has(rank)
    }

    /// Records the failure of a live member, which begins another view.
    pub fn record(&mut self, failure: Failure) {
        debug_assert!(!self.is_closed(), "a failure does not change an outcome");
        let is_new = self.has_failed.set(failure.rank);
        debug_assert!(is_new, "a member fails once");
        self.failures.push(failure);
        let words = self.has_failed.words().iter();
        self.view = words.fold(0, |view, word| xxh3_64_with_seed(&word.to_be_bytes(), view) | 1);
    }

    /// Ends the group. Returns `false` if the group had ended before, with an outcome that stays.
    pub fn end(&mut self, outcome: Outcome) -> bool {
        let is_first = self.outcome.is_none();
        let is_leaving = outcome == Outcome::Left;
        debug_assert!(!is_first || self.has_failed(self.own) == is_leaving, "leaving is a failure");
        self.outcome.get_or_insert(outcome);
        is_first
    }

    /// Panics if the failures contradict each other or the outcome.
    pub fn check_invariants(&self) {
        assert!(self.own < self.members, "this member is one of the group");
        assert_eq!(self.has_failed.count_ones() as usize, self.failures.len(), "each fails once");
        let is_marked = |failure: &Failure| self.has_failed.has(failure.rank);
        assert!(self.failures.iter().all(is_marked), "a failure marks its member");
        assert_eq!(self.view == 0, self.failures.is_empty(), "failures begin another view");
        let has_left = self.outcome == Some(Outcome::Left);
        assert_eq!(self.has_failed(self.own), has_left, "a member that has left says so");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Reason;
    use alloc::vec;

    #[test]
    fn first_live_member_leads_and_first_outcome_stays() {
        let mut membership = Membership::new(2, 4);
        assert!(!membership.is_leader() && membership.is_live_peer(0));
        let mut views = vec![membership.view()];
        for rank in [1, 0] {
            membership.record(Failure { rank, by: 2, reason: Reason::Link });
            membership.check_invariants();
            views.push(membership.view());
        }
        assert!(membership.is_leader() && !membership.is_live_peer(0));
        assert!(views[0] == 0 && views[1] != views[2], "each failure begins another view");
        let mut other = Membership::new(3, 4);
        for rank in [0, 1] {
            other.record(Failure { rank, by: 3, reason: Reason::Timeout });
        }
        assert_eq!(other.view(), membership.view(), "a view is the set of failed members");
        assert!(membership.end(Outcome::Failed) && !membership.end(Outcome::Left));
        assert!(membership.is_over() && membership.is_closed() && !membership.is_refused());
        membership.check_invariants();
    }
}
