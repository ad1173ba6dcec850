//! Queues the own steps of the schedule, one queue per receiver.

use super::Group;
use crate::Memory;
use crate::config::SHARED_BLOCKS_MAX;
use crate::peer::{BlockTransfer, QUEUE_BLOCKS};

impl<M: Memory> Group<M> {
    //= spec/bulk.md#R7
    /// Fills the queues. A full queue stops the schedule, but the queues drain independently, so a
    /// slow receiver does not delay the others before its queue is full
    /// (`docs/design/bulk.md`, "Which piece goes first?").
    pub(super) fn fill_queues(&mut self) {
        if !self.failures.is_empty() || self.outcome.is_some() {
            return;
        }
        let blocks_max = if self.config.is_shared { SHARED_BLOCKS_MAX } else { QUEUE_BLOCKS };
        self.queueing = self.queueing.max(self.stable);
        while let Some(active) = self.get(self.queueing) {
            let (object, step) = (self.queueing, active.step);
            let Some(shape) = active.shape else { return };
            if step >= active.steps {
                self.queueing += 1;
                continue;
            }
            debug_assert!(step < self.schedule.steps(shape.blocks), "the schedule has the step");
            if let Some(next) = self.schedule.outgoing(self.config.own, shape.blocks, step) {
                debug_assert_ne!(next.peer, self.config.own, "a member sends to others");
                let peer = &mut self.peers[next.peer as usize];
                debug_assert!(!peer.has_failed, "a failure ends the schedule");
                if peer.queue.len() >= blocks_max {
                    return;
                }
                if peer.queue.capacity() == 0 {
                    peer.queue.reserve(QUEUE_BLOCKS);
                }
                let flow = peer.flow(object);
                debug_assert!(flow.queued < shape.blocks, "a member gets each block once");
                let ordinal = flow.queued;
                flow.queued += 1;
                // Shared memory needs no relays: all receivers get block after block from the root.
                let order = if self.config.is_shared { next.block.into() } else { step };
                let step = (object, order + 1);
                peer.queue.push_back(BlockTransfer {
                    step,
                    object,
                    block: next.block,
                    ordinal,
                    piece: 0,
                });
                self.ready.set(next.peer);
            }
            self.active_mut(object).step += 1;
        }
    }
}
