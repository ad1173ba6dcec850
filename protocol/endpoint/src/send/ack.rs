//! Handles acknowledgements: releases what they resolve, updates windows, RTT and congestion.

use onepipe_base::{Mono, ProcessId, ProcessInstance, Psn};
use onepipe_wire::{Ack, AckView, Opcode, PiggybackedAck, Service};

use super::Sender;
use super::ack_summary::AckSummary;
use super::congestion::PacketCounters;
use super::connection::{Connection, State};
use super::flight::SentMessage;
use super::retransmit::RETRANSMIT_BURST;
use super::retransmit_buffer::UnackedMessage;
use crate::stats::Stats;
use crate::{Config, FailureReason, Outcome, SendFailed};

impl Sender {
    //= spec/ordering.md#R27
    /// Handles an ACK, NAK or Grant from `from`. Returns false if it is stale: about another
    /// incarnation or about packets that were never sent.
    pub fn on_ack(
        &mut self,
        config: &Config,
        now: Mono,
        from: ProcessInstance,
        opcode: Opcode,
        view: &AckView<'_>,
    ) -> bool {
        let accepted = self.accept_ack(config, from, opcode, &view.ack);
        let Some(peer_index) = accepted else { return false };
        let Some(summary) = self.resolve(peer_index, view) else { return false };
        // First, update the limits on sending: the receiver's window, its reservation, the
        // congestion window.
        let connections = self.peers.len();
        let connection = self.peers.get_mut(peer_index);
        connection.on_response();
        connection.failed += summary.rejected_in_window;
        let has_window = connection.on_window(&view.ack);
        let has_reservation = connection.on_reservation(&view.ack);
        if let Some(ns) = connection.on_round_trips(config, now, &summary, view.ack.delay) {
            self.last_rto_ns = ns;
        }
        connection.end_timeouts(&summary);
        let counters = PacketCounters { received: view.ack.received, marked: view.ack.marked };
        let (base, next) = (connection.flight.base(), connection.flight.next_psn());
        let charge = summary.received_charge;
        connection.congestion.on_ack(counters, charge, base, next, connections);
        if summary.rejected_charge > 0 {
            connection.congestion.on_loss(next, connections);
        }
        if connection.flight.is_receiver_behind(view) {
            connection.wants_probe = connection.wants_probe.or(Some(base));
        }
        //= spec/failure.md#R2
        // Best effort probes at once: the receiver rejects what it does not have. The reliable
        // service retransmits.
        match (connection.presume_lost(config, summary.highest_received), self.service) {
            (None, _) => {}
            (until, Service::BestEffort) => connection.wants_probe = until,
            (until, Service::Reliable) => {
                connection.flight.schedule_retransmit(None, until, RETRANSMIT_BURST);
                connection.congestion.on_loss(next, connections);
                self.queue_retransmit(peer_index);
            }
        }
        let connection = self.peers.get_mut(peer_index);
        if connection.is_reservation_drained() {
            // The probe reports that the reservation is free again.
            connection.wants_probe = connection.wants_probe.or(Some(base));
        }
        // Last, set the timer, and consider what waits for the connection.
        let wants_probe = connection.wants_probe.is_some();
        let is_idle = connection.is_idle();
        let progressed = summary.received_charge > 0 || summary.rejected_charge > 0;
        // The deadline stands unless there was progress: acknowledgements alone must not postpone
        // it.
        if is_idle || progressed {
            connection.deadline = None;
        }
        let is_unarmed = connection.deadline.is_none();
        if wants_probe {
            self.queue_signal(peer_index);
        }
        if !is_idle && is_unarmed {
            self.arm(config, now, peer_index);
        }
        if self.service == Service::Reliable {
            if self.peers.get_mut(peer_index).flight.resume_retransmit(RETRANSMIT_BURST) {
                self.queue_retransmit(peer_index);
            }
            self.complete_acked(config, now, FailureReason::Rejected);
        }
        if has_window || has_reservation || progressed || opcode == Opcode::Grant {
            self.credit.reconsider();
        }
        true
    }

    /// Handles the acknowledgement of `from` in front of its messages. Ignores a stale one.
    #[inline]
    pub fn on_piggybacked_ack(
        &mut self,
        config: &Config,
        now: Mono,
        from: ProcessInstance,
        ack: PiggybackedAck,
    ) {
        let Some(peer_index) = self.peers.index_of(from.process) else { return };
        let view = AckView::of_piggybacked(ack, &self.peers.get(peer_index).last_ack());
        self.on_ack(config, now, from, Opcode::Ack, &view);
    }

    /// Returns the index of the connection to `from` if the acknowledgement counts. A Grant may
    /// open the connection; anything else counts only from the incarnation that granted it.
    #[inline]
    fn accept_ack(
        &mut self,
        config: &Config,
        from: ProcessInstance,
        opcode: Opcode,
        ack: &Ack,
    ) -> Option<usize> {
        let peer_index = self.peers.index_of(from.process)?;
        if ack.acked_incarnation != config.incarnation.0 {
            return None;
        }
        let connection = self.peers.get_mut(peer_index);
        let is_granted = connection.peer_incarnation == Some(from.incarnation);
        match connection.state {
            _ if opcode == Opcode::Grant && connection.is_opened_by(from.incarnation) => {
                if !is_granted {
                    // What was given up to the previous incarnation.
                    connection.flight.abandon(|_| {});
                }
                let (failures, to) = (&mut self.failures, connection.to);
                connection.open(from.incarnation, |message| {
                    failures.push_back(send_failed(to, message, FailureReason::ReceiverFailed));
                });
            }
            State::Open if is_granted => {}
            State::Suspended(_) if is_granted => {
                connection.state = State::Open;
                self.credit.reconsider();
            }
            _ => return None,
        }
        Some(peer_index)
    }

    /// Resolves the packets that the acknowledgement reports. Returns `None` if it is about packets
    /// that were never sent. Lost messages are queued in `acked`, which [`Sender::complete_acked`]
    /// processes after the recalls: a scattering must be recalled before its remaining messages
    /// count as acknowledged.
    #[inline]
    fn resolve(&mut self, peer_index: usize, view: &AckView<'_>) -> Option<AckSummary> {
        let connection = self.peers.get_mut(peer_index);
        let (failures, to) = (&mut self.failures, connection.to);
        let (to_recall, lost_messages) = (&mut self.to_recall, &mut self.acked);
        let fail = |message: SentMessage, unacked: Option<UnackedMessage>| match unacked {
            Some(unacked) => to_recall.push(unacked.scattering),
            None => failures.push_back(send_failed(to, message, FailureReason::Rejected)),
        };
        let lost = |unacked| lost_messages.push(unacked);
        let (buffer, commit) = (&mut self.buffer, &mut self.commit);
        let acked = |unacked: UnackedMessage| {
            buffer.release(unacked.payload_ref, unacked.len);
            commit.ack(unacked.scattering);
        };
        connection.flight.on_ack(view, fail, lost, acked)
    }

    /// Handles a Reset: the receiver does not know the connection, because it has restarted.
    pub fn on_reset(
        &mut self,
        config: &Config,
        now: Mono,
        from: ProcessInstance,
        psn: Psn,
        stats: &mut Stats,
    ) {
        // The controllers report a restarted receiver as failed. Until they do, the reliable
        // service gives nothing up.
        if self.service == Service::Reliable && config.controllers.is_some() {
            return;
        }
        let Some(peer_index) = self.peers.index_of(from.process) else { return };
        let connection = self.peers.get_mut(peer_index);
        // A Reset of the incarnation that granted the connection, or of an earlier one, is stale.
        if connection.is_stale(from.incarnation)
            || connection.peer_incarnation == Some(from.incarnation)
        {
            return;
        }
        let is_in_flight = psn.since(connection.flight.base()) >= 0
            && !connection.flight.next_psn().is_before(psn);
        let is_open = matches!(connection.state, State::Open | State::Suspended(_));
        if is_open && is_in_flight && !connection.is_local {
            stats.peers_unreachable += 1;
            let reason = FailureReason::ReceiverFailed;
            match self.service {
                Service::BestEffort => self.give_up(peer_index, reason),
                //= spec/failure.md#R57
                Service::Reliable if self.burst.first().is_some() => return,
                Service::Reliable => self.give_up_receiver(config, now, peer_index, reason),
            }
            self.peers.get_mut(peer_index).state = State::Closed;
            if self.peers.get(peer_index).has_waiting {
                self.start_opening(config, now, peer_index);
            }
        }
    }
}

impl Connection {
    //= spec/ordering.md#R28
    /// Returns the end of the packets that are presumed lost, if it has risen. A packet is presumed
    /// lost when enough later ones have arrived (links are FIFO unless declared otherwise).
    #[inline]
    fn presume_lost(&mut self, config: &Config, highest_received: Option<Psn>) -> Option<Psn> {
        let base = self.flight.base();
        if self.probed_until.is_before(base) {
            self.probed_until = base;
        }
        let highest = highest_received.filter(|_| config.reorder_packets > 0)?;
        let until = highest.plus(1u32.wrapping_sub(config.reorder_packets));
        debug_assert!(until.is_before(self.flight.next_psn()), "only sent packets are lost");
        let has_risen = self.probed_until.is_before(until);
        has_risen.then(|| {
            self.probed_until = until;
            until
        })
    }
}

/// Returns the report of a best-effort message: lost if it was rejected, otherwise unknown.
pub(super) fn send_failed(
    to: ProcessId,
    message: SentMessage,
    reason: FailureReason,
) -> SendFailed {
    let outcome = match reason {
        FailureReason::Rejected => Outcome::Lost,
        _ => Outcome::Unknown,
    };
    SendFailed {
        service: Service::BestEffort,
        scattering: message.scattering,
        index: message.index,
        to,
        timestamp: Some(message.timestamp),
        outcome,
        reason,
    }
}
