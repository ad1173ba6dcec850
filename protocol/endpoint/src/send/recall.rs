//! Recall of scatterings whose receiver has failed or one of whose messages arrived too late.

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{Incarnation, Mono, ProcessId, ProcessInstance, Timestamp};
use onepipe_wire::Undeliverable;

use super::Sender;
use super::ack_summary::AckSummary;
use super::commit::Target;
use super::connection::State;
use crate::{Config, FailureReason, Outcome, SendFailed};

impl Sender {
    /// Releases messages resolved by an acknowledgement, and recalls scatterings with a rejected
    /// message, for this `reason`.
    pub(super) fn complete_acked(&mut self, config: &Config, now: Mono, reason: FailureReason) {
        while let Some(number) = self.to_recall.pop() {
            self.recall_scattering(config, now, number, reason);
        }
        while let Some(unacked) = self.acked.pop() {
            self.buffer.release(unacked.payload_ref, unacked.len);
            self.commit.ack(unacked.scattering);
        }
        if !self.commit.lost.is_empty() {
            self.report_lost();
        }
    }

    //= spec/failure.md#R35
    /// Handles the failure of every incarnation of `process` up to `incarnation`: sends nothing
    /// more to it, and recalls the scatterings that it has not acknowledged. Must not be called
    /// during a burst.
    pub fn on_failed(
        &mut self,
        config: &Config,
        now: Mono,
        process: ProcessId,
        incarnation: Incarnation,
    ) {
        debug_assert!(
            self.burst.first().is_none(),
            "on_failed() must not be called during a burst"
        );
        let Some(peer_index) = self.peers.index_of(process) else { return };
        let connection = self.peers.get_mut(peer_index);
        if connection.is_local
            || connection.peer_incarnation.is_some_and(|known| known > incarnation)
        {
            return;
        }
        // The next scattering to it sends a Connect and waits briefly for the response of a new
        // incarnation.
        connection.close(State::Closed);
        let (to_recall, acked) = (&mut self.to_recall, &mut self.acked);
        connection.flight.abandon(|unacked| {
            to_recall.push(unacked.scattering);
            acked.push(unacked);
        });
        let peer_incarnation = connection.peer_incarnation.unwrap_or(Incarnation(0));
        if let Some(reliable) = &mut connection.reliable {
            reliable.last_failed = Some(incarnation);
            reliable.failed_since = Some(now);
            reliable.recalls_sent = 0;
            for (number, timestamp) in reliable.recalls.drain(..) {
                self.recalls_open -= 1;
                let recall =
                    Undeliverable { to: process, incarnation: peer_incarnation, timestamp };
                self.undeliverable.push_back((recall, number));
            }
        }
        self.complete_acked(config, now, FailureReason::ReceiverFailed);
        self.credit.reconsider();
    }

    //= spec/failure.md#R5
    //= spec/failure.md#R10
    /// Recalls a scattering, once: sends a recall to each receiver. With controllers the messages
    /// are lost from now on, because the commit promise stays below the scattering until the
    /// recalls are acknowledged or recorded. Without, a receiver may be given up before it has
    /// acknowledged the recall, so a message is lost once all receivers have.
    pub(super) fn recall_scattering(
        &mut self,
        config: &Config,
        now: Mono,
        number: u64,
        reason: FailureReason,
    ) {
        if !self.commit.recall(number, reason) {
            return;
        }
        let Some(open) = self.commit.get(number).copied() else { return };
        let mut targets = core::mem::take(&mut self.targets);
        self.commit.targets(number, &mut targets);
        for target in &targets {
            let is_given_up = self.peers.get(target.to as usize).is_given_up();
            if is_given_up {
                self.report_target(number, target.to, Outcome::Unknown, reason);
                continue;
            }
            if config.controllers.is_some() {
                self.report_target(number, target.to, Outcome::Lost, reason);
            }
            let connection = self.peers.get_mut(target.to as usize);
            if connection.is_local {
                self.local_recalls.push(open.timestamp);
                continue;
            }
            let (to, peer_incarnation) =
                (connection.to, connection.peer_incarnation.unwrap_or(Incarnation(0)));
            if makes(Mistake::SiblingNotRecalled) && connection.state == State::Open {
                continue;
            }
            let Some(reliable) = &mut connection.reliable else { continue };
            // One recall covers several messages to the same receiver.
            if reliable.last_recalled.replace(number) == Some(number) {
                continue;
            }
            self.commit.expect_ack(number);
            if reliable.last_failed.is_some_and(|failed| peer_incarnation <= failed) {
                let timestamp = open.timestamp;
                let recall = Undeliverable { to, incarnation: peer_incarnation, timestamp };
                self.undeliverable.push_back((recall, number));
                continue;
            }
            reliable.recalls.push_back((number, open.timestamp));
            self.recalls_open += 1;
            if connection.deadline.is_none() {
                connection.last_request = Some(now);
                self.arm(config, now, target.to as usize);
            }
            self.queue_signal(target.to as usize);
        }
        let is_recalled = |target: &Target| self.is_recalled(number, target);
        assert!(targets.iter().all(is_recalled), "a scattering is recalled at all its receivers");
        self.targets = targets;
    }

    /// Returns whether the target of a recalled scattering is local, was given up, or is sent the
    /// recall.
    fn is_recalled(&self, number: u64, target: &Target) -> bool {
        let connection = self.peers.get(target.to as usize);
        let last = connection.reliable.as_ref().and_then(|reliable| reliable.last_recalled);
        connection.is_local || connection.is_given_up() || last == Some(number)
    }

    /// Reports the messages of a recalled scattering to the connection `to`, once.
    pub(super) fn report_target(
        &mut self,
        number: u64,
        to: u32,
        outcome: Outcome,
        reason: FailureReason,
    ) {
        let Some(open) = self.commit.get(number).copied() else { return };
        let (service, receiver) = (self.service, self.peers.get(to as usize).to);
        let failures = &mut self.failures;
        self.commit.report(number, to, |index| {
            failures.push_back(SendFailed {
                service,
                scattering: open.id,
                index,
                to: receiver,
                timestamp: Some(open.timestamp),
                outcome,
                reason,
            });
        });
    }

    /// Reports messages of recalled scatterings whose recalls are all acknowledged.
    #[cold]
    pub(super) fn report_lost(&mut self) {
        for lost in self.commit.lost.drain(..) {
            self.failures.push_back(SendFailed {
                service: self.service,
                scattering: lost.id,
                index: lost.target.index,
                to: self.peers.get(lost.target.to as usize).to,
                timestamp: Some(lost.timestamp),
                outcome: Outcome::Lost,
                reason: lost.reason,
            });
        }
    }

    /// Handles acknowledgements of recalls.
    pub fn on_recall_ack(
        &mut self,
        from: ProcessInstance,
        timestamps: impl Iterator<Item = Timestamp>,
    ) -> bool {
        let Some(peer_index) = self.peers.index_of(from.process) else { return false };
        let connection = self.peers.get_mut(peer_index);
        if connection.peer_incarnation != Some(from.incarnation) {
            return false;
        }
        connection.end_timeouts(&AckSummary::default());
        connection.on_response();
        let Some(reliable) = &mut connection.reliable else { return false };
        for timestamp in timestamps {
            let position = reliable.recalls.iter().position(|(_, recalled)| *recalled == timestamp);
            let Some(position) = position else { continue };
            if let Some((number, _)) = reliable.recalls.remove(position) {
                reliable.recalls_sent -= usize::from(position < reliable.recalls_sent);
                self.recalls_open -= 1;
                self.commit.ack(number);
            }
        }
        if connection.is_idle() {
            connection.deadline = None;
        }
        self.report_lost();
        true
    }

    /// Passes recalls to failed receivers on to `record`, as long as it accepts them.
    pub fn report_undeliverable(&mut self, mut record: impl FnMut(Undeliverable) -> bool) {
        while let Some((recall, number)) = self.undeliverable.front().copied()
            && record(recall)
        {
            self.undeliverable.pop_front();
            self.recording_undeliverable.push_back(number);
        }
    }

    /// Handles that the controllers have recorded the first `count` recalls passed on. A receiver
    /// that recovers will learn them, so their scatterings no longer wait.
    pub fn on_undeliverable_ack(&mut self, count: usize) {
        for number in
            self.recording_undeliverable.drain(..count.min(self.recording_undeliverable.len()))
        {
            self.commit.ack(number);
        }
    }

    /// Returns whether recalls wait to be passed on.
    #[inline]
    pub fn has_undeliverable(&self) -> bool {
        !self.undeliverable.is_empty()
    }

    /// Returns whether every recall is acknowledged.
    pub fn has_acked_recalls(&self) -> bool {
        self.recalls_open == 0
    }
}
