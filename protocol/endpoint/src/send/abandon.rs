//! Reports every open message after this process was excluded.

use onepipe_base::Timestamp;
use onepipe_wire::Service;

use super::Sender;
use super::ack::send_failed;
use crate::{FailureReason, Outcome};

impl Sender {
    //= spec/failure.md#R32
    /// Reports each message without a known outcome, once, after this process was excluded at `at`.
    /// Messages that were not sent are lost. Of those that were sent, best-effort ones have an
    /// unknown outcome, and no process delivers a reliable scattering at or above `at`. Must not be
    /// called during a burst.
    pub fn abandon(&mut self, at: Timestamp) {
        debug_assert!(self.burst.first().is_none(), "abandon() must not be called during a burst");
        self.fail_waiting(FailureReason::Excluded, |_| true);
        match self.service {
            Service::BestEffort => self.abandon_flights(),
            Service::Reliable => self.abandon_open(at),
        }
        self.cancelled.clear();
        self.signals.clear();
        self.retransmit_queue.clear();
        self.unreachable.clear();
        self.deadline = None;
        self.credit.reconsider();
    }

    fn abandon_flights(&mut self) {
        for peer_index in 0..self.peers.len() {
            let connection = self.peers.get_mut(peer_index);
            let (failures, to) = (&mut self.failures, connection.to);
            connection.flight.give_up(|message| {
                failures.push_back(send_failed(to, message, FailureReason::Excluded));
            });
        }
    }

    fn abandon_open(&mut self, at: Timestamp) {
        let mut targets = core::mem::take(&mut self.targets);
        for number in self.commit.numbers() {
            let Some(open) = self.commit.get(number).copied() else { continue };
            if open.is_complete() || !self.commit.recall(number, FailureReason::Excluded) {
                continue;
            }
            let outcome = match open.timestamp >= at {
                true => Outcome::Lost,
                false => Outcome::Unknown,
            };
            self.commit.targets(number, &mut targets);
            for target in &targets {
                self.report_target(number, target.to, outcome, FailureReason::Excluded);
            }
        }
        self.targets = targets;
        let acked = &mut self.acked;
        for peer_index in 0..self.peers.len() {
            self.peers.get_mut(peer_index).flight.abandon(|unacked| acked.push(unacked));
        }
        while let Some(unacked) = self.acked.pop() {
            self.buffer.release(unacked.payload_ref, unacked.len);
        }
    }
}
