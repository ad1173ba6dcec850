//! Our steps of the schedule, dealt to one queue for each receiver.

use super::Group;
use crate::peer::{Due, QUEUE_BLOCKS};

impl Group {
    /// Deals as far as the queues have places. Each receiver's queue moves on its own, so a slow
    /// one does not hold up the others (design: bulk.md section 9).
    pub(super) fn deal(&mut self) {
        if !self.failures.is_empty() || self.outcome.is_some() {
            return;
        }
        self.dealing = self.dealing.max(self.stable);
        while let Some(live) = self.get(self.dealing) {
            let (object, step) = (self.dealing, live.step);
            let Some(shape) = live.shape else { return };
            if step >= live.steps {
                self.dealing += 1;
                continue;
            }
            if let Some(next) = self.schedule.outgoing(self.config.own, shape.blocks, step) {
                let peer = &mut self.peers[next.peer as usize];
                if peer.queue.len() >= QUEUE_BLOCKS {
                    return;
                }
                if peer.queue.capacity() == 0 {
                    peer.queue.reserve(QUEUE_BLOCKS);
                }
                let flow = peer.flow(object);
                let ordinal = flow.dealt;
                flow.dealt += 1;
                let step = (object, step + 1);
                peer.queue.push_back(Due { step, object, block: next.block, ordinal, piece: 0 });
                self.ready.set(next.peer);
            }
            self.live_mut(object).step += 1;
        }
    }
}
