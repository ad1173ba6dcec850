//! Our steps of the schedule, dealt to one queue for each receiver.

use super::Group;
use crate::Memory;
use crate::config::SHARED_BLOCKS_MAX;
use crate::peer::{BlockTransfer, QUEUE_BLOCKS};

impl<M: Memory> Group<M> {
    /// Deals as far as the queues have places. Each receiver's queue moves on its own, so a slow
    /// one does not hold up the others (design: bulk.md section 9).
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
            if let Some(next) = self.schedule.outgoing(self.config.own, shape.blocks, step) {
                let peer = &mut self.peers[next.peer as usize];
                if peer.queue.len() >= blocks_max {
                    return;
                }
                if peer.queue.capacity() == 0 {
                    peer.queue.reserve(QUEUE_BLOCKS);
                }
                let flow = peer.flow(object);
                let ordinal = flow.queued;
                flow.queued += 1;
                // What lies where all can reach it is handed to all block by block: there is no
                // step in which anybody could relay it.
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
