//! Signalling frames of a sender, which carry no messages: Connect, Probe and Recall.

use core::hint::black_box;

use onepipe_base::{Incarnation, Mono, ProcessId, ProcessInstance, Psn};
use onepipe_wire::{Opcode, Probe, Service};

use super::Sender;
use super::connection::{Reservation, State};
use crate::stats::Stats;
use crate::{Config, FailureReason};

/// Distance of prefetching: the state of the connection this far ahead in the queue is fetched
/// while a frame is written.
const PREFETCH_DISTANCE: usize = 1;

/// A frame without messages whose payload is written.
pub(crate) struct SignalFrame {
    pub to: ProcessId,
    pub opcode: Opcode,
    pub psn: Psn,
    pub payload_len: usize,
}

impl Sender {
    /// Writes the next Connect, Probe or Recall into `payload`.
    pub fn write_signal(&mut self, config: &Config, payload: &mut [u8]) -> Option<SignalFrame> {
        while let Some(peer_index) = self.signals.pop_front() {
            if let Some(&next) = self.signals.get(PREFETCH_DISTANCE) {
                black_box(self.peers.get(next as usize).prefetch());
            }
            let connection = self.peers.get_mut(peer_index as usize);
            connection.is_signal_queued = false;
            let to = connection.to;
            let (mut psn, next) = (connection.flight.base(), connection.flight.next_psn());
            let written = if core::mem::take(&mut connection.wants_connect) {
                //= spec/ordering.md#R89
                psn = next;
                let payload_len = connection.write_connect(config, payload);
                payload_len.map(|payload_len| (Opcode::Connect, payload_len))
            } else if let Some(until) = connection.wants_probe.take() {
                let until = if until.is_before(psn) { psn } else { until };
                // A reservation is in use while messages charged to it are in flight.
                let is_done = match connection.reservation {
                    Reservation::None | Reservation::Refused => true,
                    Reservation::InUse => connection.is_reservation_drained(),
                    Reservation::Requested(_) | Reservation::Granted(_) => false,
                };
                let reservation_done = connection.reservation_id.wrapping_sub(u32::from(!is_done));
                let probe = Probe { resolved: psn, until, reservation_done };
                probe.write(payload).map(|payload_len| (Opcode::Probe, payload_len))
            } else {
                connection.write_recalls(payload).map(|payload_len| (Opcode::Recall, payload_len))
            };
            if connection.wants_probe.is_some() || connection.wants_recall() {
                self.queue_signal(peer_index as usize);
            }
            if let Some((opcode, payload_len)) = written {
                return Some(SignalFrame { to, opcode, psn, payload_len });
            }
        }
        None
    }

    /// Sends a Connect to an unreachable peer to learn whether it is back; messages to it fail
    /// meanwhile.
    pub(super) fn probe_unreachable(&mut self, config: &Config, now: Mono, peer_index: usize) {
        let connection = self.peers.get_mut(peer_index);
        connection.state = State::Unreachable(now.after_ns(connection.retry_interval_ns(config)));
        connection.wants_connect = true;
        self.queue_signal(peer_index);
    }

    /// Handles the failure of a peer up to `incarnation`: messages in flight to it have an unknown
    /// outcome, and messages to it fail until it connects again.
    pub fn on_gone(&mut self, process: ProcessId, incarnation: Incarnation, stats: &mut Stats) {
        if self.service == Service::Reliable {
            return;
        }
        let Some(peer_index) = self.peers.index_of(process) else { return };
        let connection = self.peers.get(peer_index);
        let has_peer_failed = connection
            .peer_incarnation
            .is_none_or(|peer_incarnation| peer_incarnation <= incarnation);
        let is_used =
            matches!(connection.state, State::Opening | State::Open | State::Suspended(_));
        if !connection.is_local && has_peer_failed && is_used {
            stats.peers_unreachable += 1;
            self.give_up(peer_index, FailureReason::ReceiverFailed);
            let connection = self.peers.get_mut(peer_index);
            connection.deadline = None;
            connection.state = State::Unreachable(Mono::from_ns(0));
        }
    }

    /// Handles a Connect from a peer, which shows that it is reachable again.
    pub fn on_reconnect(&mut self, from: ProcessInstance) {
        let ProcessInstance { process, incarnation } = from;
        let Some(peer_index) = self.peers.index_of(process) else { return };
        let connection = self.peers.get_mut(peer_index);
        if let Some(reliable) = &mut connection.reliable {
            reliable.last_connected = reliable.last_connected.max(Some(incarnation));
        }
        if matches!(connection.state, State::Unreachable(_)) && !connection.has_failed(incarnation)
        {
            connection.state = State::Closed;
        }
    }

    pub(super) fn queue_signal(&mut self, peer_index: usize) {
        let connection = self.peers.get_mut(peer_index);
        if !core::mem::replace(&mut connection.is_signal_queued, true) {
            self.signals.push_back(peer_index as u32);
        }
    }
}
