//! Telling senders what is here, what never will be, and how much more may come.

use core::hint::black_box;

use onepipe_base::{Mono, ProcessId, Psn};
use onepipe_wire::{ACK_WORDS_MAX, Ack, Opcode};

use super::Receiver;
use super::incoming::Room;
use crate::Config;

/// How many unknown connections are answered at a time; the rest ask again.
const RESETS_MAX: usize = 64;

/// Answers are written one after the other, of senders that may not have been heard of for long:
/// the state of the one this far behind is fetched while one is written.
const AHEAD: usize = 1;

/// An answer as written.
pub(crate) struct Answer {
    pub to: ProcessId,
    pub opcode: Opcode,
    pub psn: Psn,
    pub bytes: usize,
}

impl Receiver {
    /// Refuses a packet for good and says so at once.
    pub(super) fn refuse(&mut self, at: usize, psn: Psn) {
        self.peers.at(at).tracker.fence(psn);
        self.answer_now(at, Opcode::Nak);
    }

    pub(super) fn on_unknown(&mut self, from: ProcessId, psn: Psn) {
        if self.resets.len() < RESETS_MAX && self.resets.iter().all(|(known, _)| *known != from) {
            self.resets.push_back((from, psn));
        }
    }

    #[inline]
    pub(super) fn answer_now(&mut self, at: usize, opcode: Opcode) {
        let sender = self.peers.at(at);
        match sender.answer {
            None => {
                sender.answer = Some(opcode);
                self.answers.push_back(at as u32);
            }
            // A grant says all that a NAK says, a NAK all that an ACK says.
            Some(Opcode::Grant) => {}
            Some(_) if opcode != Opcode::Ack => sender.answer = Some(opcode),
            Some(_) => {}
        }
    }

    #[inline]
    pub(super) fn answer_later(&mut self, config: &Config, now: Mono, at: usize) {
        let sender = self.peers.at(at);
        if sender.answer.is_none() && !core::mem::replace(&mut sender.is_delayed, true) {
            self.delayed.push(at as u32);
            self.answer_by = self.answer_by.or(Some(now.after_ns(config.ack_delay_ns)));
        }
    }

    /// When the delayed acknowledgements are due.
    pub fn deadline(&self) -> Option<Mono> {
        self.answer_by
    }

    /// Whether acknowledgements are delayed.
    pub fn has_delayed(&self) -> bool {
        self.answer_by.is_some()
    }

    /// Makes delayed acknowledgements due.
    pub fn on_timeout(&mut self, config: &Config, now: Mono) {
        self.reclaim_room(config, now);
        if self.answer_by.is_none_or(|by| now < by) {
            return;
        }
        self.answer_delayed();
    }

    /// Makes delayed acknowledgements due at once.
    pub fn answer_delayed(&mut self) {
        self.answer_by = None;
        // All at once: one after the other the misses would add up.
        let senders = self.delayed.iter().map(|at| self.peers.peek(*at as usize));
        black_box(senders.fold(0, |all, sender| all ^ sender.fetch()));
        while let Some(at) = self.delayed.pop() {
            let sender = self.peers.at(at as usize);
            if core::mem::take(&mut sender.is_delayed) && sender.unacknowledged > 0 {
                self.answer_now(at as usize, Opcode::Ack);
            }
        }
    }

    /// Whether an answer is due.
    #[inline]
    pub fn wants_transmit(&self) -> bool {
        !self.answers.is_empty() || !self.resets.is_empty() || !self.recall_acks.is_empty()
    }

    /// Writes the next answer into `payload`.
    pub fn write_answer(&mut self, payload: &mut [u8]) -> Option<Answer> {
        if let Some((to, psn)) = self.resets.pop_front() {
            return Some(Answer { to, opcode: Opcode::Reset, psn, bytes: 0 });
        }
        let at = self.answers.pop_front()? as usize;
        if let Some(&soon) = self.answers.get(AHEAD) {
            black_box(self.peers.peek(soon as usize).fetch());
        }
        let window = self.window;
        let sender = self.peers.at(at);
        let opcode = sender.answer.take().unwrap_or(Opcode::Ack);
        sender.unacknowledged = 0;
        sender.freed = 0;
        let ack = Ack {
            cumulative: sender.tracker.base(),
            received: sender.received,
            marked: sender.marked,
            window_bytes: sender.window_bytes(window) as u32,
            consumed_bytes: sender.consumed,
            connection: sender.incarnation.0,
            reservation_id: sender.reservation_id(),
            reservation: match sender.room() {
                Room::Closed | Room::Waiting(_) => Ack::RESERVATION_PENDING,
                Room::Open { .. } => Ack::RESERVATION_GRANTED,
                Room::Refused => Ack::RESERVATION_REFUSED,
            },
        };
        // The smallest legal frame holds eight words; more are told when the base has moved.
        let words_max = (payload.len().saturating_sub(64) / 16).min(ACK_WORDS_MAX);
        let bytes = ack.write(payload, sender.tracker.words(words_max))?;
        Some(Answer { to: sender.from, opcode, psn: Psn::FIRST, bytes })
    }
}
