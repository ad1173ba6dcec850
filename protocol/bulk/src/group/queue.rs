//! Queues the own steps of the schedule, one queue per receiver.

use super::Group;
use super::object_window::OwnStep;
use crate::Memory;
use crate::config::SHARED_BLOCKS_MAX;
use crate::object::BlockId;
use crate::transfers::QUEUE_BLOCKS;

impl<M: Memory> Group<M> {
    //= spec/bulk.md#R7
    /// Fills the queues. A full queue stops the schedule, but the queues drain independently, so a
    /// slow receiver does not delay the others before its queue is full
    /// (`docs/design/bulk.md`, "Which piece goes first?").
    pub(super) fn fill_queues(&mut self) {
        if self.membership.has_failures() || self.membership.is_over() {
            return;
        }
        let blocks_max = if self.config.is_shared { SHARED_BLOCKS_MAX } else { QUEUE_BLOCKS };
        while let Some(OwnStep { object, blocks, step }) = self.window.next_step() {
            debug_assert!(step < self.schedule.steps(blocks), "the schedule has the step");
            if let Some(next) = self.schedule.outgoing(self.config.own, blocks, step) {
                debug_assert_ne!(next.peer, self.config.own, "a member sends to others");
                let peer = &mut self.peers[next.peer];
                if peer.transfers.scheduled() >= blocks_max {
                    return;
                }
                // Shared memory needs no relays: all receivers get block after block from the root.
                let order = if self.config.is_shared { next.block.into() } else { step };
                let ordinal = peer.queue_block(BlockId { object, block: next.block }, order + 1);
                debug_assert!(ordinal < blocks, "a member gets each block once");
                self.peers.set_ready(next.peer);
            }
            self.window.finish_step();
        }
    }
}
