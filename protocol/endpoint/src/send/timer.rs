//! Deadlines of connections: probes, retransmission timeouts, giving up.

use onepipe_base::Mono;
use onepipe_wire::Service;

use super::Sender;
use super::ack::send_failed;
use super::connection::{Connection, Reservation, State};
use crate::stats::Stats;
use crate::{Config, FailureReason};

/// A connection without a sample assumes a retransmission timeout of at most this many of the
/// shortest ones: the load under which others measured theirs may be over.
const ASSUMED_RTO_MAX: u64 = 64;

/// A connection whose deadline has passed.
#[derive(Clone, Copy)]
pub(super) struct Expired {
    pub peer_index: usize,
    /// Whether controllers report receivers that have failed.
    pub is_controlled: bool,
}

impl Sender {
    /// Returns a lower bound of all deadlines of connections.
    pub fn deadline(&self) -> Option<Mono> {
        self.deadline
    }

    /// Handles every connection whose deadline has passed: probes, retransmits or gives up.
    /// A reliable sender counts on controllers if `is_controlled`.
    pub fn on_timeout(
        &mut self,
        config: &Config,
        now: Mono,
        is_controlled: bool,
        stats: &mut Stats,
    ) {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        self.deadline = self.blocked.map(|(due, _)| due);
        for peer_index in 0..self.peers.len() {
            match self.peers.get(peer_index).deadline {
                Some(deadline) if deadline <= now => {
                    self.on_deadline(config, now, Expired { peer_index, is_controlled }, stats)
                }
                Some(deadline) => self.note_deadline(deadline),
                None => {}
            }
        }
    }

    fn on_deadline(&mut self, config: &Config, now: Mono, expired: Expired, stats: &mut Stats) {
        let peer_index = expired.peer_index;
        let connection = self.peers.get_mut(peer_index);
        connection.deadline = None;
        if let State::Closed | State::Unreachable(_) = connection.state {
            // Only the rest of a burst that was unfinished when the connection was given up can be
            // in flight here.
            self.give_up(peer_index, FailureReason::NoAnswer);
            return;
        }
        let rto_ns = connection.rto_ns(config);
        let oldest = connection.flight.oldest_sent();
        // A retransmission may have left well after the timeout that asked for it.
        let is_restarted = self.service == Service::Reliable && connection.state == State::Open;
        if (connection.attempts == 0 || is_restarted)
            && let Some(oldest) = oldest
            && oldest.after_ns(rto_ns) > now
        {
            connection.deadline = Some(oldest.after_ns(rto_ns));
            self.note_deadline(oldest.after_ns(rto_ns));
            return;
        }
        if self.service == Service::Reliable {
            return self.on_reliable_timeout(config, now, expired, stats);
        }
        if connection.attempts >= config.attempts_max() && !connection.suspend(config, now) {
            let was_asked = connection.was_asked_for(now, config.unknown_after_ns);
            debug_assert!(was_asked, "outcomes are asked for before they are unknown");
            stats.peers_unreachable += 1;
            self.give_up(peer_index, FailureReason::NoAnswer);
            let connection = self.peers.get_mut(peer_index);
            connection.state =
                State::Unreachable(now.after_ns(connection.retry_interval_ns(config)));
            return;
        }
        connection.attempts = connection.attempts.saturating_add(1);
        connection.last_request = Some(now);
        // Repeating the Connect keeps the reservation from being reclaimed.
        let has_requested = connection.has_requested_reservation();
        if connection.state == State::Opening || has_requested {
            connection.wants_connect = true;
        }
        if let State::Open | State::Suspended(_) = connection.state {
            let overdue = Mono::from_ns(now.as_ns().saturating_sub(config.probe_timeout_min_ns));
            connection.wants_probe = Some(connection.flight.first_sent_after(overdue));
        }
        self.queue_signal(peer_index);
        self.arm(config, now, peer_index);
    }

    //= spec/ordering.md#R27
    /// Gives up the packets in flight on the connection at `peer_index`: their outcome is unknown.
    pub(super) fn give_up(&mut self, peer_index: usize, reason: FailureReason) {
        let connection = self.peers.get_mut(peer_index);
        let (failures, to) = (&mut self.failures, connection.to);
        connection.flight.give_up(|message| {
            failures.push_back(send_failed(to, message, reason));
        });
        connection.reservation = Reservation::None;
        connection.reset_timeouts();
        (connection.wants_connect, connection.wants_probe) = (false, None);
        self.credit.reconsider();
    }

    /// Sets the connection's deadline to one retransmission timeout from now.
    pub(super) fn arm(&mut self, config: &Config, now: Mono, peer_index: usize) {
        let connection: &mut Connection = self.peers.get_mut(peer_index);
        if connection.is_local {
            return;
        }
        let assumed_ns_max = ASSUMED_RTO_MAX.saturating_mul(config.probe_timeout_min_ns);
        connection.assume_rto(self.last_rto_ns.min(assumed_ns_max));
        // Measured from the oldest packet, so that its loss is detected while others are
        // acknowledged.
        let since = connection.flight.oldest_sent().max(connection.last_request).unwrap_or(now);
        let deadline = since.after_ns(connection.rto_ns(config)).max(now.after_ns(1));
        connection.deadline = Some(deadline);
        self.note_deadline(deadline);
    }

    pub(super) fn note_deadline(&mut self, deadline: Mono) {
        self.deadline = Some(self.deadline.map_or(deadline, |earliest| earliest.min(deadline)));
    }
}
