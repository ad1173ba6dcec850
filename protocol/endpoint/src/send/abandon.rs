//! What becomes of everything submitted when the process itself takes part no more.

use onepipe_base::{ScatteringId, Timestamp};
use onepipe_wire::Service;

use super::Sender;
use super::flight::SentMessage;
use crate::{Outcome, SendFailed};

impl Sender {
    /// This process was excluded as of `at`: each message whose fate is open is reported, once.
    /// What has not left never will; of what has, the fate of best effort is not known, and a
    /// reliable scattering at or above `at` is delivered by nobody. Not while a burst is under way.
    pub fn abandon(&mut self, at: Timestamp) {
        debug_assert!(self.burst.first().is_none(), "a burst ends before it is abandoned");
        self.abandon_waiting();
        match self.service {
            Service::BestEffort => self.abandon_flights(),
            Service::Reliable => self.abandon_open(at),
        }
        self.control.clear();
        self.resends.clear();
        self.unreachable.clear();
        self.deadline = None;
        self.credit.reconsider();
    }

    fn abandon_waiting(&mut self) {
        for position in (0..self.buffer.len()).rev() {
            let scattering = self.buffer.queued(position);
            if scattering.has_left {
                continue;
            }
            for index in 0..scattering.messages {
                let message = self.buffer.message_mut(scattering.first + u64::from(index));
                if message.has_failed() {
                    continue;
                }
                let (to, place, bytes) = (message.to, message.fail(), message.bytes);
                self.buffer.release(place, bytes);
                self.report(scattering.id, (index as u16, to), None, Outcome::Lost);
            }
            self.buffer.leave(position);
        }
    }

    fn abandon_flights(&mut self) {
        for at in 0..self.peers.len() {
            let connection = self.peers.at(at);
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
            if open.is_settled() || !self.commit.recall(number) {
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
        let done = &mut self.done;
        for at in 0..self.peers.len() {
            self.peers.at(at).flight.abandon(|_, kept| done.push(kept));
        }
        while let Some(kept) = self.done.pop() {
            self.buffer.release(kept.place, kept.bytes);
        }
    }

    fn report(
        &mut self,
        scattering: ScatteringId,
        (index, to): (u16, u32),
        timestamp: Option<Timestamp>,
        outcome: Outcome,
    ) {
        let (service, to) = (self.service, self.peers.peek(to as usize).to);
        let failed = SendFailed { service, scattering, index, to, timestamp, outcome };
        self.failures.push_back(failed);
    }
}
