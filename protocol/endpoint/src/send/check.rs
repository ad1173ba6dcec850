//! Invariants of the send path.

use onepipe_base::ProcessId;
use onepipe_wire::Service;

use super::Sender;
use super::connection::{Connection, Reservation, State};
use super::retransmit::RETRANSMIT_BURST;
use super::retransmit_timeout::BACKOFF_MAX;
use crate::{Config, MESSAGE_CHARGE_BYTES};

const _: () = assert!(RETRANSMIT_BURST.is_power_of_two(), "a timeout takes quarters of it");
const _: () = assert!(BACKOFF_MAX < 8, "a backoff of the longest timeout fits 64 bits");

impl Connection {
    /// Checks the state of one destination. `is_idle`: the sender has no unfinished burst.
    pub fn check_invariants(&self, config: &Config, is_idle: bool) {
        self.flight.check_invariants();
        assert!(self.consumed <= self.sent, "the application consumes what was sent");
        assert_eq!(self.need, 0, "needs are recorded during admission only");
        assert!(!self.is_local || self.to == config.process, "the local connection");
        assert!(!self.is_local || self.flight.is_empty(), "local messages bypass the network");
        assert!(!self.is_local || self.state == State::Open, "a process reaches itself");
        assert!(!self.is_local || self.in_burst == 0, "local messages need no burst");
        assert!(!self.is_local || self.deadline.is_none(), "local messages need no timer");
        assert!(!self.is_local || !self.has_recalls(), "local messages are recalled at once");
        if is_idle {
            assert!(self.chain.is_empty(), "a burst that has ended leaves no message");
            assert_eq!(self.in_burst, 0, "a burst that has ended charges nothing");
            assert!(!self.uses_reservation || self.is_local, "a burst uses the reservation");
        }
        if let State::Open | State::Opening | State::Suspended(_) = self.state {
            let is_timed = self.is_local || self.deadline.is_some();
            assert!(self.flight.is_accounted_for() || is_timed, "packets in flight are timed");
        }
        if let State::Opening = self.state {
            assert!(self.deadline.is_some(), "a Connect is repeated");
        }
        if self.state == State::Open && !self.is_local {
            assert!(self.peer_incarnation.is_some(), "a Grant opens the connection");
        }
        match self.reservation {
            Reservation::Requested(bytes) | Reservation::Granted(bytes) => {
                assert!(bytes > 0, "a reservation is for a message");
                assert!(self.reservation_id > 0 || self.is_local, "requests have an id");
            }
            Reservation::None | Reservation::InUse | Reservation::Refused => {}
        }
        assert!(u16::from(self.backoff) <= BACKOFF_MAX, "doublings have a limit");
        assert!(self.backoff == 0 || self.reliable.is_some(), "best effort retransmits nothing");
        self.check_reliable();
        self.congestion.check_invariants(config);
    }

    fn check_reliable(&self) {
        let Some(reliable) = &self.reliable else { return };
        assert!(reliable.recalls_sent <= reliable.recalls.len(), "pending recalls are sent");
        let has_timer = self.deadline.is_some() || reliable.recalls.is_empty();
        assert!(has_timer, "a recall is repeated until it is acknowledged");
        let is_known = reliable.last_failed.is_some() || reliable.failed_since.is_none();
        assert!(is_known, "a failure names an incarnation");
    }
}

impl Sender {
    /// Returns the window of the process at its own receiver, in bytes.
    pub fn local_window(&self) -> u64 {
        self.local_window
    }

    /// Returns the index of the connection to `process`.
    pub fn index_of(&self, process: ProcessId) -> Option<usize> {
        self.peers.index_of(process)
    }

    /// Returns the number of recalls that controllers are recording.
    pub fn recording_undeliverable(&self) -> usize {
        self.recording_undeliverable.len()
    }

    /// Checks the connection to one destination, given by its index.
    pub fn check_peer(&self, config: &Config, peer_index: usize) {
        let connection = self.peers.get(peer_index);
        connection.check_invariants(config, self.burst.first().is_none());
        if let Some(deadline) = connection.deadline {
            let is_bound = self.deadline.is_some_and(|earliest| earliest <= deadline);
            assert!(is_bound, "the sender's deadline is the earliest of its connections");
        }
    }

    /// Checks all connections, the buffer, the burst and the open scatterings. The process must not
    /// have been excluded.
    pub fn check_invariants(&self, config: &Config) {
        for peer_index in 0..self.peers.len() {
            self.check_peer(config, peer_index);
        }
        self.peers.check_invariants();
        self.buffer.check_invariants();
        self.burst.check_invariants(|to| self.peers.get(to as usize).chain.is_empty());
        self.check_queues();
        self.check_buffered_bytes();
        self.check_acks_missing();
        assert!(self.credit.blocked_count() <= self.buffer.len(), "waiting scatterings do not fit");
        assert!(self.acked.is_empty(), "acknowledged messages are completed at once");
        assert!(self.to_recall.is_empty(), "rejected scatterings are recalled at once");
        assert!(self.local_release.is_none(), "a started burst takes the release along");
        assert!(self.local_request.is_none(), "a started burst takes the request along");
        assert!(self.sharing.is_empty(), "destinations share a frame while it is written");
        assert!(self.commit.lost.is_empty(), "lost messages are reported at once");
    }

    /// Checks that each connection is in a queue exactly if it is marked so.
    fn check_queues(&self) {
        let signals = self.peers.iter().filter(|connection| connection.is_signal_queued).count();
        assert_eq!(self.signals.len(), signals, "connections with a signal");
        let reliable = || self.peers.iter().filter_map(|connection| connection.reliable.as_ref());
        let queued = reliable().filter(|reliable| reliable.is_retransmit_queued).count();
        assert_eq!(self.retransmit_queue.len(), queued, "connections with a retransmission");
        let recalls: usize = reliable().map(|reliable| reliable.recalls.len()).sum();
        assert_eq!(self.recalls_open as usize, recalls, "recalls without an acknowledgement");
        if self.service == Service::BestEffort {
            assert!(self.commit.is_complete(), "best effort commits nothing");
            assert!(self.undeliverable.is_empty(), "best effort recalls nothing");
            assert!(self.recording_undeliverable.is_empty(), "best effort recalls nothing");
            assert!(self.local_recalls.is_empty(), "best effort recalls nothing");
            assert!(self.cancelled.is_empty(), "best effort cancels nothing");
        }
    }

    /// Checks that the send buffer holds the payloads that wait, that are being sent, and that may
    /// be retransmitted.
    fn check_buffered_bytes(&self) {
        let charge = |len: u32| (len + MESSAGE_CHARGE_BYTES) as usize;
        let (waiting, mut payloads) = self.buffer.waiting();
        let mut bytes = waiting;
        for &to in self.burst.destinations.get(self.burst.served..).unwrap_or_default() {
            let mut position = self.peers.get(to as usize).chain.first;
            // The flight has the message that is being fragmented.
            let has_begun = self.service == Service::Reliable && self.burst.is_fragmenting(to);
            if has_begun && let Some(stamped) = self.burst.messages.get(position as usize) {
                position = stamped.next;
            }
            while let Some(stamped) = self.burst.messages.get(position as usize) {
                bytes += charge(stamped.len);
                payloads += 1;
                position = stamped.next;
            }
        }
        for connection in self.peers.iter() {
            connection.flight.awaited_messages().for_each(|unacked| {
                bytes += charge(unacked.len);
                payloads += 1;
            });
        }
        assert_eq!(self.buffer.bytes_used(), bytes, "the send buffer holds what may be sent");
        assert_eq!(self.buffer.payloads(), payloads, "a payload is released once");
    }

    /// Checks that the open scatterings together wait for what is in flight, to be sent or to be
    /// recalled.
    fn check_acks_missing(&self) {
        self.commit.check_invariants();
        if self.service == Service::BestEffort {
            return;
        }
        let in_burst = self.burst.unsent(|to| self.peers.get(to as usize).chain.first);
        let in_flight: usize =
            self.peers.iter().map(|connection| connection.flight.awaited_messages().count()).sum();
        let recalls = self.recalls_open as usize
            + self.undeliverable.len()
            + self.recording_undeliverable.len();
        let missing = self.commit.acks_missing();
        assert_eq!(missing, in_burst + in_flight + recalls, "acknowledgements to arrive");
    }
}
