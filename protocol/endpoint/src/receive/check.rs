//! Invariants of the receive path.

use onepipe_base::{Incarnation, ProcessId, Timestamp};
use onepipe_wire::Service;

use super::ack::RESETS_MAX;
use super::flow_control::{LOCAL, LocalReservation};
use super::refuse::AWAITED_MAX;
use super::remote_sender::{RemoteSender, Reservation};
use super::{RECALL_ACK_QUEUE_MAX, Receiver};
use crate::{Config, Delivery};

impl RemoteSender {
    /// Checks the state of one sender, whose window is `window` bytes.
    pub fn check_invariants(&self, window: u64) {
        self.tracker.check_invariants();
        let (mut before, mut used) = (0, 0);
        if let Some(cold) = self.cold() {
            before = cold.buffered_before;
            if let Reservation::Granted { size, used: charged } = cold.reservation {
                used = charged;
                assert!(charged <= size, "a reservation bounds what is charged to it");
            }
            assert!(used <= cold.buffered_reserved || used > 0, "used memory is buffered");
        }
        assert!(u64::from(self.buffered) + before <= window, "I11: a window bounds its sender");
        assert!(self.generation > 0 || before == 0, "only a restart leaves messages behind");
    }
}

impl Receiver {
    /// Returns the index of the sender `process`.
    pub fn index_of(&self, process: ProcessId) -> Option<usize> {
        self.peers.index_of(process)
    }

    /// Returns the incarnation that has sent a message, if it is the last one that was seen.
    pub fn sender_of(&self, delivery: &Delivery) -> Option<Incarnation> {
        let sender = self.peers.get(self.peers.index_of(delivery.from)?);
        (sender.generation == delivery.buffered.generation).then_some(sender.incarnation)
    }

    /// Checks the sender at `peer_index`.
    pub fn check_peer(&self, peer_index: usize) {
        self.peers.get(peer_index).check_invariants(self.window);
    }

    /// Checks all senders, the buffer and its accounts, and the reorder stage. `barrier` is that of
    /// the service if it drops incomplete messages at once.
    pub fn check_invariants(&self, config: &Config, barrier: Option<Timestamp>) {
        for peer_index in 0..self.peers.len() {
            self.check_peer(peer_index);
            assert!(self.peers.get(peer_index).from != config.process, "no peer is this process");
        }
        self.peers.check_invariants();
        self.check_accounts(config);
        self.check_ack_queues();
        self.check_reservation_queue();
        self.check_waiting();
        self.filter.check_invariants();
        for partial in self.reassembly.iter() {
            partial.check_invariants();
            assert!(barrier.is_none_or(|barrier| partial.timestamp >= barrier), "it can complete");
            assert!(self.newest >= Some(partial.timestamp), "the newest timestamp is known");
            let sender = self.peers.get(partial.from as usize);
            assert!(partial.generation <= sender.generation, "generations ascend");
        }
        if self.service == Service::BestEffort {
            assert!(self.filter.is_empty(), "best effort recalls nothing");
            assert!(self.recall_ack_queue.is_empty(), "best effort recalls nothing");
            assert!(!self.awaits_recalls(), "best effort recalls nothing");
        } else {
            assert!(self.unordered.is_empty(), "a commit is a position in the order");
        }
    }

    /// Checks the bytes charged to senders, to reservations and in total.
    fn check_accounts(&self, config: &Config) {
        let (mut buffered, mut reserved) = (0, 0);
        for sender in self.peers.iter() {
            buffered += u64::from(sender.buffered);
            let Some(cold) = sender.cold() else { continue };
            buffered += cold.buffered_before + cold.buffered_reserved;
            reserved += cold.buffered_reserved;
            if let Reservation::Granted { size, used } = cold.reservation {
                reserved += size - used;
            }
        }
        if let LocalReservation::Granted(size) = self.local_reservation {
            reserved += size;
        }
        // The rest is local: messages of this process, and what its sender has reserved.
        assert!(self.buffered >= buffered, "messages of all senders are buffered");
        assert!(self.reserved_bytes >= reserved, "granted reservations are reserved");
        assert!(self.reserved_bytes <= self.reservation_bytes_max, "reservations fit their half");
        let bytes_max = config.receive_buffer_bytes_max as u64;
        assert!(self.buffered <= bytes_max, "I11: the receive buffer stays within its limit");
        assert!(self.window <= u64::from(config.window_bytes_max), "a window has a maximum");
        self.arena.check_invariants();
        // The application may hold further payloads.
        let payloads = self.waiting + self.reassembly.len();
        assert!(self.arena.references() >= payloads, "the payload of a waiting message stays");
    }

    /// Checks that each sender is in a queue exactly if it is marked so.
    fn check_ack_queues(&self) {
        let pending = self.peers.iter().filter(|sender| sender.pending_ack.is_some()).count();
        assert!(self.ack_queue.len() >= pending, "senders with an acknowledgement");
        let delayed = self.peers.iter().filter(|sender| sender.is_ack_delayed()).count();
        let waiting = self.delayed_acks.iter().filter(|entry| self.is_delayed(**entry)).count();
        assert!(waiting >= delayed, "each packet is acknowledged");
        assert!(self.reset_queue.len() <= RESETS_MAX, "Resets are bounded");
        assert!(self.recall_ack_queue.len() <= RECALL_ACK_QUEUE_MAX, "recalls are bounded");
        assert!(self.refusal.awaited_len() <= AWAITED_MAX, "awaited recalls are bounded");
    }

    /// Checks that each request for a reservation waits once, and that the first one does not fit.
    fn check_reservation_queue(&self) {
        let is_waiting =
            |sender: &&RemoteSender| matches!(sender.reservation(), Reservation::Waiting(_));
        let remote = self.peers.iter().filter(is_waiting).count();
        let is_local_waiting = matches!(self.local_reservation, LocalReservation::Waiting(_));
        let waiting = remote + usize::from(is_local_waiting);
        assert_eq!(self.reservation_queue.len(), waiting, "a request waits once");
        let size = match (self.reservation_queue.front(), self.local_reservation) {
            (Some(&LOCAL), LocalReservation::Waiting(size)) => size,
            (Some(&LOCAL), _) | (None, _) => return,
            (Some(&peer_index), _) => match self.peers.get(peer_index as usize).reservation() {
                Reservation::Waiting(size) => size,
                _ => 0,
            },
        };
        let free = self.reservation_bytes_max - self.reserved_bytes;
        assert!(size > free, "a request that fits is granted");
        assert!(size <= self.reservation_bytes_max, "a request that never fits is refused");
    }

    /// Checks the stages that hold whole messages.
    fn check_waiting(&self) {
        self.reorder.check_invariants();
        let entries =
            self.reorder.len() + usize::from(self.cursor.is_some()) + self.unordered.len();
        assert!(entries <= self.waiting, "each entry has a message");
        assert_eq!(entries == 0, self.waiting == 0, "each message has an entry");
        if let Some(cursor) = &self.cursor {
            assert!(self.newest >= Some(cursor.timestamp()), "the newest timestamp is known");
        }
    }
}
