//! Invariants of a group, checked after inputs in debug builds, and by simulations and fuzzers. No
//! input may break them: whatever other members send, the state of this one does not contradict
//! itself.

use super::receive::MISSED_BLOCKS;
use super::{ActiveObject, Group};
use crate::Memory;
use crate::event::Outcome;
use crate::object::BlockId;

/// Number of frames after which all invariants are checked in debug builds, not only those of the
/// group's own counts: the others take time linear in the blocks and the frames in flight.
const CHECKED_FRAMES: u64 = 128;

impl<M: Memory> Group<M> {
    /// In debug builds, checks what a frame or a timeout may have broken, and sometimes everything.
    #[inline]
    pub(super) fn check_after_frame(&self) {
        if cfg!(debug_assertions) {
            match self.stats.frames_received.is_multiple_of(CHECKED_FRAMES) {
                true => self.check_invariants(),
                false => self.check_counts(),
            }
        }
    }

    /// In debug builds, checks all invariants.
    #[inline]
    pub(super) fn check_after_command(&self) {
        if cfg!(debug_assertions) {
            self.check_invariants();
        }
    }

    /// Checks that the state does not contradict itself. For tests, simulations and fuzzers: takes
    /// time linear in the blocks of active objects and in the frames in flight.
    ///
    /// # Panics
    /// If it does: a bug of this crate.
    pub fn check_invariants(&self) {
        self.check_counts();
        self.check_failures();
        self.check_requests();
        for (object, active) in (self.stable..).zip(&self.active) {
            self.check_object(object, active);
        }
        for rank in self.ranks().filter(|rank| *rank != self.config.own) {
            let peer = &self.peers[rank as usize];
            peer.check_invariants(self.failures.len(), self.config.is_shared);
            assert!(peer.has_failed || !self.has_failed.has(rank), "a failed member stays failed");
        }
    }

    /// Checks how far objects are, and the end of the group.
    fn check_counts(&self) {
        let objects_max = self.config.objects_max;
        assert_eq!(self.active.len(), objects_max as usize, "active objects have a slot each");
        assert!(self.stable <= self.complete, "a stable object is complete here, too");
        assert!(self.complete <= self.resolved, "a complete object is not lost");
        assert!(self.resolved - self.stable <= objects_max, "only active objects are resolved");
        assert!(self.complete <= self.known, "a complete object is known");
        assert!(self.known - self.stable <= objects_max, "only active objects are known");
        if self.config.own == 0 {
            assert!(self.total.is_none_or(|total| total == self.known), "none follows the last");
            assert_eq!(self.complete, self.known, "the root has all it has sent");
        }
        let is_closed = matches!(self.outcome, Some(Outcome::Complete | Outcome::Failed));
        assert_eq!(self.is_closed, is_closed, "the leader closes the group");
        assert_eq!(self.is_clean, self.outcome == Some(Outcome::Complete));
        if let Some(staged) = &self.staged {
            assert!(staged.from != self.config.own, "no piece comes from this member");
            let piece_len = self.config.piece_len() as usize;
            assert!(self.staged_bytes.len() <= piece_len, "a piece at most");
            let lacks_memory =
                |active: &ActiveObject<M>| active.shape.is_some() && active.object.is_none();
            let is_awaited = self.get(staged.header.object).is_some_and(lacks_memory);
            assert!(is_awaited || self.outcome.is_some(), "a staged piece waits for memory");
        }
    }

    fn check_failures(&self) {
        assert_eq!(self.has_failed.count_ones() as usize, self.failures.len(), "each fails once");
        let is_marked = |rank: u32| self.has_failed.has(rank);
        assert!(self.failures.iter().all(|failure| is_marked(failure.rank)));
        assert_eq!(self.view == 0, self.failures.is_empty(), "failures begin another view");
        let has_left = self.outcome == Some(Outcome::Left);
        assert_eq!(is_marked(self.config.own), has_left, "a member that has left says so");
        let is_listed = |rank: &u32| *rank != self.config.own;
        assert!(self.first_senders.iter().all(is_listed), "blocks come from other members");
        assert!(!self.sources.has(self.config.own), "blocks come from other members");
    }

    /// Checks an active object.
    fn check_object(&self, object: u32, active: &ActiveObject<M>) {
        assert!(active.step <= active.steps, "the schedule has as many steps");
        assert!(active.missed.len() <= MISSED_BLOCKS, "missed blocks are bounded");
        assert!(active.missed.is_empty() || active.object.is_none(), "they wait for memory");
        assert!(
            active.shape.is_some() == (object < self.known) || !self.has_all(),
            "known in order"
        );
        let Some(body) = &active.object else { return };
        assert_eq!(active.shape, Some(body.shape), "memory is of the announced object");
        let is_complete = body.missing == 0;
        assert!(is_complete || object >= self.complete, "objects before `complete` are");
        assert!(is_complete || !active.is_delivered, "only a complete object is delivered");
        assert!(is_complete || active.digest.is_none(), "only a complete object has a digest");
        body.check_invariants();
    }

    /// Returns whether every known object was announced here: none was learned of by its successor.
    fn has_all(&self) -> bool {
        (self.stable..self.known)
            .all(|object| self.get(object).is_some_and(|active| active.shape.is_some()))
    }

    /// Checks that requested blocks are missing here, and marked as requested.
    fn check_requests(&self) {
        if self.outcome.is_some() {
            // The memory of the objects was returned.
            return;
        }
        for BlockId { object, block } in self.peers.iter().flat_map(|peer| &peer.requested) {
            let body = self.get(*object).and_then(|active| active.object.as_ref());
            let body = body.expect("only blocks of objects with memory are requested");
            assert!(body.requested.has(*block), "a request is marked");
            assert!(!body.held.has(*block), "a block that is here is not requested");
        }
    }
}
