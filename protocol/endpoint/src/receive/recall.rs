//! Recalls and failures: records the tombstones that the delivery filter applies.

use alloc::vec::Vec;

use onepipe_base::{Incarnation, ProcessId, ProcessInstance, Timestamp};

use super::filter::RecalledScattering;
use super::{RECALL_ACK_QUEUE_MAX, Receiver};

impl Receiver {
    //= spec/failure.md#R7
    /// Handles a recall: scatterings that were not delivered yet will not be. Returns the number of
    /// recalls that were not taken because of a limit, or `None` if the sender is unknown.
    pub fn on_recall(
        &mut self,
        sender: ProcessInstance,
        timestamps: impl Iterator<Item = Timestamp>,
    ) -> Option<u64> {
        let from = sender.process;
        let known = self.peers.index_of(from).map(|peer_index| self.peers.get(peer_index));
        let known = known.filter(|known| known.incarnation == sender.incarnation)?;
        let generation = known.generation;
        let mut refused = 0;
        for timestamp in timestamps {
            if self.recall_ack_queue.len() < RECALL_ACK_QUEUE_MAX
                && self.filter.recall(RecalledScattering { timestamp, from, generation })
            {
                self.recall_ack_queue.push_back((from, timestamp));
                self.on_recalled(from, timestamp);
            } else {
                refused += 1;
            }
        }
        Some(refused)
    }

    /// Recalls a scattering of this process to itself.
    pub fn recall_local(&mut self, own: ProcessId, timestamp: Timestamp) {
        self.filter.recall_unbounded(RecalledScattering { timestamp, from: own, generation: 0 });
    }

    /// Recalls a scattering of any incarnation of `from`, as reported by recovery.
    pub fn recall_recovered(&mut self, from: ProcessId, timestamp: Timestamp) {
        let Some(peer_index) = self.peers.index_of(from) else { return };
        // The recovery record does not name the incarnation. All incarnations that were seen here
        // have failed, except at most the last, so the recall applies to each.
        for generation in 0..=self.peers.get(peer_index).generation {
            self.filter.recall_unbounded(RecalledScattering { timestamp, from, generation });
        }
    }

    /// Takes up to `max` recalls of one sender whose acknowledgement is due.
    pub fn take_recall_acks(&mut self, into: &mut Vec<Timestamp>, max: usize) -> Option<ProcessId> {
        let (to, _) = *self.recall_ack_queue.front()?;
        into.clear();
        while let Some((from, timestamp)) = self.recall_ack_queue.front().copied()
            && from == to
            && into.len() < max
        {
            into.push(timestamp);
            self.recall_ack_queue.pop_front();
        }
        Some(to)
    }

    /// Discards messages of `process` at or above `at`, for every incarnation up to `incarnation`
    /// that was not reported as failed before.
    pub fn on_failed(&mut self, process: ProcessId, incarnation: Incarnation, at: Timestamp) {
        self.on_recalls_ended(process);
        let peers = &self.peers;
        self.filter.prune_discards(|sender| {
            // The local process has no entry among the senders; its discards stay.
            peers.index_of(sender).is_some_and(|index| peers.get(index).has_nothing_buffered())
        });
        let Some(peer_index) = self.peers.index_of(process) else { return };
        let sender = self.peers.get(peer_index);
        if sender.incarnation <= incarnation {
            self.filter.discard(process, sender.generation, at);
            self.close_reservation(peer_index);
        } else if sender.generation > 0 {
            self.filter.discard(process, sender.generation - 1, at);
        }
    }

    /// Handles the exclusion of this process at `at`: no other process delivers its messages from
    /// there on, so its local ones are discarded, too.
    pub fn on_excluded(&mut self, own: ProcessId, at: Timestamp) {
        self.filter.discard(own, 0, at);
    }
}
