//! Acknowledgements: what was received, what was rejected, and how much more may be sent.

use core::hint::black_box;

use onepipe_base::{Mono, ProcessId, Psn};
use onepipe_wire::{ACK_WORDS_MAX, Ack, Opcode};

use super::Receiver;
use super::remote_sender::Reservation;
use crate::Config;

/// Limit on queued Resets; other senders will retransmit and get theirs later.
pub(super) const RESETS_MAX: usize = 64;

/// Distance of prefetching: while one acknowledgement is written, the state of the sender this far
/// ahead in the queue is fetched. Senders are many, so their state is rarely in the cache.
const PREFETCH_DISTANCE: usize = 1;

/// A frame without messages whose payload is written.
pub(crate) struct Response {
    pub to: ProcessId,
    pub opcode: Opcode,
    pub psn: Psn,
    pub payload_len: usize,
}

impl Receiver {
    /// Rejects a packet permanently and sends a NAK.
    pub(super) fn reject(&mut self, peer_index: usize, psn: Psn) {
        self.peers.get_mut(peer_index).tracker.reject(psn);
        self.queue_ack(peer_index, Opcode::Nak);
    }

    pub(super) fn queue_reset(&mut self, from: ProcessId, psn: Psn) {
        if self.reset_queue.len() < RESETS_MAX
            && self.reset_queue.iter().all(|(known, _)| *known != from)
        {
            self.reset_queue.push_back((from, psn));
        }
    }

    #[inline]
    pub(super) fn queue_ack(&mut self, peer_index: usize, opcode: Opcode) {
        let sender = self.peers.get_mut(peer_index);
        match sender.pending_ack {
            None => {
                sender.pending_ack = Some(opcode);
                self.ack_queue.push_back(peer_index as u32);
            }
            // A Grant contains what a NAK contains, and a NAK what an ACK contains.
            Some(Opcode::Grant) => {}
            Some(_) if opcode != Opcode::Ack => sender.pending_ack = Some(opcode),
            Some(_) => {}
        }
    }

    #[inline]
    pub(super) fn delay_ack(&mut self, config: &Config, now: Mono, peer_index: usize) {
        let sender = self.peers.get_mut(peer_index);
        if sender.pending_ack.is_none() && !core::mem::replace(&mut sender.is_ack_delayed, true) {
            self.delayed_acks.push(peer_index as u32);
            self.delayed_ack_deadline =
                self.delayed_ack_deadline.or(Some(now.after_ns(config.ack_delay_ns)));
        }
    }

    /// Returns when the delayed acknowledgements are due.
    pub fn deadline(&self) -> Option<Mono> {
        self.delayed_ack_deadline
    }

    pub fn has_delayed_acks(&self) -> bool {
        self.delayed_ack_deadline.is_some()
    }

    /// Reclaims idle reservations and flushes delayed acknowledgements that are due.
    pub fn on_timeout(&mut self, config: &Config, now: Mono) {
        self.reclaim_reservations(config, now);
        if self.delayed_ack_deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        self.flush_delayed_acks();
    }

    /// Makes all delayed acknowledgements due at once.
    pub fn flush_delayed_acks(&mut self) {
        self.delayed_ack_deadline = None;
        // Prefetched together, so that the cache misses overlap.
        let senders =
            self.delayed_acks.iter().map(|peer_index| self.peers.get(*peer_index as usize));
        black_box(senders.fold(0, |all, sender| all ^ sender.prefetch()));
        while let Some(peer_index) = self.delayed_acks.pop() {
            let sender = self.peers.get_mut(peer_index as usize);
            if core::mem::take(&mut sender.is_ack_delayed) && sender.unacked > 0 {
                self.queue_ack(peer_index as usize, Opcode::Ack);
            }
        }
    }

    /// Returns whether an acknowledgement or a Reset is due.
    #[inline]
    pub fn wants_transmit(&self) -> bool {
        !self.ack_queue.is_empty()
            || !self.reset_queue.is_empty()
            || !self.recall_ack_queue.is_empty()
    }

    //= spec/ordering.md#R29
    /// Writes the next acknowledgement or Reset into `payload`.
    pub fn write_response(&mut self, payload: &mut [u8]) -> Option<Response> {
        if let Some((to, psn)) = self.reset_queue.pop_front() {
            return Some(Response { to, opcode: Opcode::Reset, psn, payload_len: 0 });
        }
        let peer_index = self.ack_queue.pop_front()? as usize;
        if let Some(&next) = self.ack_queue.get(PREFETCH_DISTANCE) {
            black_box(self.peers.get(next as usize).prefetch());
        }
        let window = self.window;
        let sender = self.peers.get_mut(peer_index);
        let opcode = sender.pending_ack.take().unwrap_or(Opcode::Ack);
        sender.unacked = 0;
        sender.freed_since_ack = 0;
        let ack = Ack {
            cumulative: sender.tracker.base(),
            received: sender.received,
            marked: sender.marked,
            window_bytes: sender.window_bytes(window) as u32,
            consumed_bytes: sender.consumed,
            acked_incarnation: sender.incarnation.0,
            reservation_id: sender.reservation_id(),
            reservation: match sender.reservation() {
                Reservation::None | Reservation::Waiting(_) => Ack::RESERVATION_PENDING,
                Reservation::Granted { .. } => Ack::RESERVATION_GRANTED,
                Reservation::Refused => Ack::RESERVATION_REFUSED,
            },
        };
        // The shortest legal frame holds eight words; further words follow when the base has
        // advanced.
        let words_max = (payload.len().saturating_sub(64) / 16).min(ACK_WORDS_MAX);
        let payload_len = ack.write(payload, sender.tracker.words(words_max))?;
        Some(Response { to: sender.from, opcode, psn: Psn::FIRST, payload_len })
    }
}
