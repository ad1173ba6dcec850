//! The handshake of a connection: Connect requests a window, and a reservation if one is needed;
//! Grant opens the connection.

use onepipe_base::{Incarnation, Mono};
use onepipe_wire::Connect;

use super::Sender;
use super::connection::{Connection, Reservation, State};
use crate::{Config, FailureReason};

impl Sender {
    //= spec/ordering.md#R25
    /// Starts the handshake of the connection at `peer_index`. Gives up what was in flight on it.
    pub(super) fn start_opening(&mut self, config: &Config, now: Mono, peer_index: usize) {
        if !self.peers.get(peer_index).flight.is_accounted_for() {
            self.give_up(peer_index, FailureReason::NoAnswer);
        }
        let connection = self.peers.get_mut(peer_index);
        connection.state = State::Opening;
        connection.reset_timeouts();
        connection.last_request = Some(now);
        if let Some(reliable) = &mut connection.reliable {
            (reliable.opening_since, reliable.unanswered_ns) = (Some(now), 0);
        }
        connection.wants_connect = true;
        self.queue_signal(peer_index);
        self.arm(config, now, peer_index);
    }
}

impl Connection {
    /// Writes the payload of a Connect. Returns its length.
    pub(super) fn write_connect(&self, config: &Config, payload: &mut [u8]) -> Option<usize> {
        let (reservation_id, reservation_bytes) = match self.reservation {
            Reservation::Requested(bytes) | Reservation::Granted(bytes) => {
                (self.reservation_id, bytes)
            }
            _ => (0, 0),
        };
        let ack_delay_ns = config.ack_delay_ns as u32;
        Connect { reservation_id, reservation_bytes, ack_delay_ns }.write(payload)
    }

    /// Returns whether a Grant of this incarnation of the receiver opens the connection.
    pub(super) fn is_opened_by(&self, peer_incarnation: Incarnation) -> bool {
        matches!(self.state, State::Opening | State::Unreachable(_))
            && !self.is_stale(peer_incarnation)
            && !self.has_failed(peer_incarnation)
    }
}
