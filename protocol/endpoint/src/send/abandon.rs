//! Reports every open message after this process was excluded.

use onepipe_base::{ScatteringId, Timestamp};
use onepipe_wire::Service;

use super::Sender;
use super::flight::SentMessage;
use crate::{Outcome, SendFailed};

impl Sender {
    //= spec/failure.md#R32
    /// Reports each message without a known outcome, once, after this process was excluded at `at`.
    /// Messages that were not sent are lost. Of those that were sent, best-effort ones have an
    /// unknown outcome, and no process delivers a reliable scattering at or above `at`. Must not be
    /// called during a burst.
    pub fn abandon(&mut self, at: Timestamp) {
        debug_assert!(self.burst.first().is_none(), "abandon() must not be called during a burst");
        self.abandon_waiting();
        match self.service {
            Service::BestEffort => self.abandon_flights(),
            Service::Reliable => self.abandon_open(at),
        }
        self.signals.clear();
        self.retransmit_queue.clear();
        self.unreachable.clear();
        self.deadline = None;
        self.credit.reconsider();
    }

    fn abandon_waiting(&mut self) {
        for position in (0..self.buffer.len()).rev() {
            let scattering = self.buffer.queued(position);
            if scattering.is_sent {
                continue;
            }
            for index in 0..scattering.messages {
                let message = self.buffer.message_mut(scattering.first + u64::from(index));
                if message.has_failed() {
                    continue;
                }
                let (to, payload_ref, len) = (message.to, message.fail(), message.len);
                self.buffer.release(payload_ref, len);
                self.report(scattering.id, (index as u16, to), None, Outcome::Lost);
            }
            self.buffer.mark_sent(position);
        }
    }

    fn abandon_flights(&mut self) {
        for peer_index in 0..self.peers.len() {
            let connection = self.peers.get_mut(peer_index);
            let (failures, to) = (&mut self.failures, connection.to);
            connection.flight.give_up(|message: SentMessage| {
                failures.push_back(SendFailed {
                    service: Service::BestEffort,
                    scattering: message.scattering,
                    index: message.index,
                    to,
                    timestamp: Some(message.timestamp),
                    outcome: Outcome::Unknown,
                });
            });
        }
    }

    fn abandon_open(&mut self, at: Timestamp) {
        let mut targets = core::mem::take(&mut self.targets);
        for number in self.commit.numbers() {
            let Some(open) = self.commit.get(number).copied() else { continue };
            if open.is_complete() || !self.commit.recall(number) {
                continue;
            }
            let outcome = match open.timestamp >= at {
                true => Outcome::Lost,
                false => Outcome::Unknown,
            };
            self.commit.targets(number, &mut targets);
            for target in &targets {
                self.report(open.id, (target.index, target.to), Some(open.timestamp), outcome);
            }
        }
        self.targets = targets;
        let acked = &mut self.acked;
        for peer_index in 0..self.peers.len() {
            self.peers.get_mut(peer_index).flight.abandon(|_, unacked| acked.push(unacked));
        }
        while let Some(unacked) = self.acked.pop() {
            self.buffer.release(unacked.payload_ref, unacked.len);
        }
    }

    fn report(
        &mut self,
        scattering: ScatteringId,
        (index, to): (u16, u32),
        timestamp: Option<Timestamp>,
        outcome: Outcome,
    ) {
        let (service, to) = (self.service, self.peers.get(to as usize).to);
        let failed = SendFailed { service, scattering, index, to, timestamp, outcome };
        self.failures.push_back(failed);
    }
}
