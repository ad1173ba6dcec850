//! Invariants of a group, checked after inputs in debug builds, and by simulations and fuzzers. No
//! input may break them: whatever other members send, the state of this one does not contradict
//! itself.

use super::{ActiveObject, Group};
use crate::Memory;
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
        self.check_requests();
        self.window.check_invariants();
        self.senders.check_invariants(self.config.own);
        self.timers.check_invariants();
        self.refusals.check_invariants();
        self.peers.check_invariants(&self.membership, self.config.is_shared);
        assert!(self.lost.is_empty(), "lost content is queued at once");
    }

    /// Checks how far objects are, who has failed, and what waits for memory.
    fn check_counts(&self) {
        self.window.check_counts(self.config.objects_max);
        self.membership.check_invariants();
        self.staging.check_invariants(self.config.own, self.config.piece_len() as usize);
        if let Some(piece) = self.staging.piece() {
            let active = self.window.get(piece.header.object);
            let is_awaited = active.is_some_and(ActiveObject::awaits_memory);
            assert!(is_awaited || self.membership.is_over(), "a staged piece waits for memory");
        }
    }

    /// Checks that requested blocks are missing here, and marked as requested.
    fn check_requests(&self) {
        if self.membership.is_over() {
            // The memory of the objects was returned.
            return;
        }
        for BlockId { object, block } in self.peers.iter().flat_map(|peer| &peer.requested) {
            let body = self.window.body(*object);
            let body = body.expect("only blocks of objects with memory are requested");
            assert!(body.requested.has(*block), "a request is marked");
            assert!(!body.held.has(*block), "a block that is here is not requested");
        }
    }
}
