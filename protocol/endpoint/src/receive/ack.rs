//! Acknowledgements: what was received, what was rejected, and how much more may be sent.

use core::hint::black_box;

use onepipe_base::{Mono, ProcessId, Psn};
use onepipe_wire::{ACK_WORDS_MAX, Ack, AckDelay, Opcode, PiggybackedAck};

use super::Receiver;
use super::delayed_acks::Delayed;
use super::remote_sender::Reservation;
use crate::Config;

/// Limit on queued Resets; other senders will retransmit and get theirs later.
pub(super) const RESETS_MAX: usize = 64;

/// Distance of prefetching: while one acknowledgement is written, the state of the sender this far
/// ahead in the queue is fetched. Senders are many, so their state is rarely in the cache.
const PREFETCH_DISTANCE: usize = 1;

/// Maximum number of delayed acknowledgements that leave together before all their delays end, as
/// many frames as a transport sends with one system call.
const BATCH_MAX: usize = 16;

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

    /// Delays the acknowledgement of a packet that was just counted.
    #[inline]
    pub(super) fn delay_ack(&mut self, now: Mono, peer_index: usize) {
        let sender = self.peers.get_mut(peer_index);
        if sender.pending_ack.is_none() && sender.unacked == 1 {
            sender.oldest_at = sender.newest_at;
            self.delayed_acks.push(now, peer_index);
        }
    }

    /// Returns when the first delayed acknowledgement is due.
    #[inline]
    pub fn deadline(&self) -> Option<Mono> {
        self.delayed_acks.deadline()
    }

    /// Returns whether [`Receiver::flush_delayed_acks`] makes an acknowledgement due.
    pub fn has_delayed_acks(&self) -> bool {
        self.delayed_acks.iter().any(|delayed| self.is_delayed(*delayed))
    }

    /// Returns whether the acknowledgement still waits: it was not sent since.
    pub(super) fn is_delayed(&self, delayed: Delayed) -> bool {
        let sender = self.peers.get(delayed.peer_index as usize);
        sender.is_ack_delayed() && sender.oldest_at == AckDelay::ticks(delayed.since.as_ns())
    }

    /// Reclaims idle reservations and flushes delayed acknowledgements that are due.
    pub fn on_timeout(&mut self, config: &Config, now: Mono) {
        self.reclaim_reservations(config, now);
        let mut ended = 0;
        while let Some(delayed) = self.delayed_acks.pop_due(now) {
            ended += usize::from(self.end_delay(delayed));
        }
        self.end_half_due(now, ended);
    }

    /// Fills a batch of `ended` acknowledgements, if there are any, with those of which half of the
    /// delay has passed.
    fn end_half_due(&mut self, now: Mono, mut ended: usize) {
        while (1..BATCH_MAX).contains(&ended) {
            let Some(delayed) = self.delayed_acks.pop_half_due(now) else { return };
            ended += usize::from(self.end_delay(delayed));
        }
    }

    /// Makes all delayed acknowledgements due at once.
    pub fn flush_delayed_acks(&mut self) {
        // Prefetched together, so that the cache misses overlap.
        let delayed = self.delayed_acks.iter().map(|delayed| delayed.peer_index as usize);
        let senders = delayed.map(|peer_index| self.peers.get(peer_index));
        black_box(senders.fold(0, |all, sender| all ^ sender.prefetch()));
        while let Some(delayed) = self.delayed_acks.pop() {
            self.end_delay(delayed);
        }
    }

    /// Makes the oldest delayed acknowledgement due at once.
    pub fn flush_oldest_ack(&mut self, now: Mono) {
        while let Some(delayed) = self.delayed_acks.pop() {
            if self.end_delay(delayed) {
                return self.end_half_due(now, 1);
            }
        }
    }

    /// Queues the acknowledgement if it still waits. Returns whether it did.
    #[inline]
    fn end_delay(&mut self, delayed: Delayed) -> bool {
        let waits = self.is_delayed(delayed);
        if waits {
            self.queue_ack(delayed.peer_index as usize, Opcode::Ack);
        }
        waits
    }

    /// Returns whether an acknowledgement is due.
    #[inline]
    pub fn has_due_acks(&self) -> bool {
        !self.ack_queue.is_empty()
    }

    /// Returns whether an acknowledgement or a Reset is due.
    #[inline]
    pub fn wants_transmit(&self) -> bool {
        !self.ack_queue.is_empty()
            || !self.reset_queue.is_empty()
            || !self.recall_ack_queue.is_empty()
    }

    //= spec/ordering.md#R87
    /// Writes the acknowledgement of the packets of `to` in front of the messages of a data frame
    /// to it, if one waits that fits the short form. Returns the length written.
    #[inline]
    pub fn write_piggyback(&mut self, now: Mono, to: ProcessId, payload: &mut [u8]) -> usize {
        let Some(peer_index) = self.peers.index_of(to) else { return 0 };
        let sender = self.peers.get_mut(peer_index);
        let now_ticks = AckDelay::ticks(now.as_ns());
        let is_due = match sender.pending_ack {
            None => {
                let waited = now_ticks.wrapping_sub(sender.oldest_at);
                sender.unacked > 0 && self.delayed_acks.may_travel(waited)
            }
            Some(opcode) => opcode == Opcode::Ack && sender.unacked > 0,
        };
        if !is_due || !sender.fits_piggyback() {
            return 0;
        }
        let ack = PiggybackedAck {
            cumulative: sender.tracker.base(),
            consumed: sender.consumed as u32,
            acked_incarnation: sender.incarnation.0,
            received: sender.received as u8,
            marked: sender.marked as u8,
            delay: sender.newest_delay(now),
        };
        let Some(len) = ack.write(payload) else { return 0 };
        // A pending acknowledgement stays in the queue, where it is passed over.
        sender.pending_ack = None;
        sender.on_acked();
        len
    }

    //= spec/ordering.md#R29
    /// Writes the next acknowledgement or Reset into `payload`.
    pub fn write_response(&mut self, now: Mono, payload: &mut [u8]) -> Option<Response> {
        if let Some((to, psn)) = self.reset_queue.pop_front() {
            return Some(Response { to, opcode: Opcode::Reset, psn, payload_len: 0 });
        }
        let (peer_index, opcode) = loop {
            let peer_index = self.ack_queue.pop_front()? as usize;
            // Without a pending one, the acknowledgement has travelled with data.
            if let Some(opcode) = self.peers.get_mut(peer_index).pending_ack.take() {
                break (peer_index, opcode);
            }
        };
        if let Some(&next) = self.ack_queue.get(PREFETCH_DISTANCE) {
            black_box(self.peers.get(next as usize).prefetch());
        }
        let window = self.window;
        let sender = self.peers.get_mut(peer_index);
        let delay = sender.newest_delay(now);
        sender.on_acked();
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
            delay,
        };
        // The shortest legal frame holds eight words; further words follow when the base has
        // advanced.
        let words_max = (payload.len().saturating_sub(64) / 16).min(ACK_WORDS_MAX);
        let payload_len = ack.write(payload, sender.tracker.words(words_max))?;
        Some(Response { to: sender.from, opcode, psn: Psn::FIRST, payload_len })
    }
}
