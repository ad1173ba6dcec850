//! Ends reliable scatterings that no acknowledgement and no controller will end: their receiver
//! does not answer, nothing may be sent, or the application has cancelled them
//! (docs/design/failure.md, "What ends a scattering without a controller?").

use onepipe_base::{Mono, ScatteringId};

use super::Sender;
use super::buffer::QueuedScattering;
use super::connection::{Connection, Reservation, State};
use super::timer::Expired;
use crate::stats::Stats;
use crate::{Config, FailureReason, Outcome, SendFailed};

impl Sender {
    //= spec/failure.md#R55
    /// Handles that a receiver has not answered for as long as scatterings wait for it. Returns
    /// whether the connection is given up.
    #[cold]
    pub(super) fn on_no_answer(
        &mut self,
        config: &Config,
        now: Mono,
        expired: Expired,
        stats: &mut Stats,
    ) -> bool {
        let Expired { peer_index, is_controlled } = expired;
        let connection = self.peers.get_mut(peer_index);
        match connection.state {
            // The next incarnation of a failed receiver has a time limit of its own (R43).
            State::Opening if !connection.is_presumed_failed() => {
                stats.peers_unreachable += 1;
                let retry = now.after_ns(connection.retry_interval_ns(config));
                connection.state = State::Unreachable(retry);
                connection.reset_timeouts();
                connection.wants_connect = false;
                (connection.claimed, connection.has_waiting) = (0, false);
                if let Some(reliable) = &mut connection.reliable {
                    reliable.is_given_up = true;
                }
                self.credit.reconsider();
                true
            }
            State::Open if config.controllers.is_none() && self.burst.first().is_none() => {
                stats.peers_unreachable += 1;
                self.give_up_receiver(config, now, peer_index, FailureReason::NoController);
                true
            }
            State::Open if !is_controlled && self.burst.first().is_none() => {
                // The commit promise stays below these until a controller resolves the failure.
                self.to_recall.extend(connection.flight.awaited());
                self.complete_acked(config, now, FailureReason::NoController);
                false
            }
            _ => false,
        }
    }

    //= spec/failure.md#R55
    //= spec/failure.md#R56
    /// Gives up what was sent to a receiver, for this `reason`: the scatterings are recalled at
    /// their other receivers, and what this one does with its messages is unknown. Must not be
    /// called during a burst.
    pub(super) fn give_up_receiver(
        &mut self,
        config: &Config,
        now: Mono,
        peer_index: usize,
        reason: FailureReason,
    ) {
        debug_assert!(self.burst.first().is_none(), "a receiver is given up between bursts");
        let connection = self.peers.get_mut(peer_index);
        connection.close(State::Unreachable(now.after_ns(connection.retry_interval_ns(config))));
        let (to_recall, acked) = (&mut self.to_recall, &mut self.acked);
        connection.flight.give_up_unacked(|unacked| {
            to_recall.push(unacked.scattering);
            acked.push(unacked);
        });
        let Some(reliable) = &mut connection.reliable else { return };
        (reliable.is_given_up, reliable.recalls_sent) = (true, 0);
        let recalls = core::mem::take(&mut reliable.recalls);
        self.recalls_open -= recalls.len() as u32;
        for (number, _) in recalls {
            self.report_target(number, peer_index as u32, Outcome::Unknown, reason);
            self.commit.ack(number);
        }
        self.complete_acked(config, now, reason);
        self.credit.reconsider();
    }

    //= spec/failure.md#R58
    /// Handles that no new scattering may be sent, for this `reason`: those that have waited for as
    /// long as scatterings wait are lost, and the others wait for at most twice as long.
    #[cold]
    pub fn on_blocked(&mut self, config: &Config, now: Mono, reason: FailureReason) {
        let end = match self.buffer.len() {
            0 => return self.blocked = None,
            len => self.buffer.queued(len - 1).id,
        };
        match self.blocked {
            Some((due, last)) if due <= now => {
                self.fail_waiting(reason, |id| id <= last);
                self.blocked = None;
            }
            Some(_) => return,
            None => {}
        }
        if config.give_up_after_ns > 0 && self.buffer.len() > 0 {
            let due = now.after_ns(config.give_up_after_ns);
            self.blocked = Some((due, end));
            self.note_deadline(due);
        }
    }

    /// Handles that new scatterings may be sent.
    #[inline]
    pub fn on_unblocked(&mut self) {
        self.blocked = None;
    }

    //= spec/failure.md#R59
    /// Cancels a scattering before the next burst. Returns false if it has an outcome.
    pub fn cancel(&mut self, scattering: ScatteringId) -> bool {
        let is_waiting = (0..self.buffer.len()).any(|position| {
            let queued = self.buffer.queued(position);
            queued.id == scattering && !queued.is_sent
        });
        let is_open = is_waiting || self.number_of(scattering).is_some();
        if is_open && !self.cancelled.contains(&scattering) {
            self.cancelled.push(scattering);
        }
        is_open
    }

    /// Returns whether a cancelled scattering is to be taken back.
    #[inline]
    pub fn has_cancelled(&self) -> bool {
        !self.cancelled.is_empty()
    }

    //= spec/failure.md#R59
    /// Takes back the cancelled scatterings, unless a burst is unfinished.
    #[cold]
    pub fn apply_cancelled(&mut self, config: &Config, now: Mono) {
        while self.burst.first().is_none()
            && let Some(scattering) = self.cancelled.pop()
        {
            let reason = FailureReason::Cancelled;
            self.fail_waiting(reason, |id| id == scattering);
            if let Some(number) = self.number_of(scattering) {
                self.recall_scattering(config, now, number, reason);
            }
        }
    }

    /// Returns the number of a scattering that was sent and is neither complete nor recalled.
    fn number_of(&self, scattering: ScatteringId) -> Option<u64> {
        self.commit.numbers().find(|number| {
            self.commit.get(*number).is_some_and(|open| {
                open.id == scattering && !open.is_complete() && open.recalled.is_none()
            })
        })
    }

    /// Reports the waiting scatterings whose ids `fails` accepts as lost.
    pub(super) fn fail_waiting(
        &mut self,
        reason: FailureReason,
        fails: impl Fn(ScatteringId) -> bool,
    ) {
        // From the back, because marking the first one as sent removes it.
        for position in (0..self.buffer.len()).rev() {
            let scattering = self.buffer.queued(position);
            if scattering.is_sent || !fails(scattering.id) {
                continue;
            }
            for index in 0..scattering.messages {
                let message = self.buffer.message(scattering.first + u64::from(index));
                if message.has_failed() {
                    continue;
                }
                let connection = self.peers.get_mut(message.to as usize);
                (connection.claimed, connection.has_waiting) = (0, false);
                self.fail_unsent(scattering, index, reason);
            }
            self.buffer.mark_sent(position);
        }
        self.credit.reconsider();
    }

    /// Reports a message that was not sent as lost, and releases its payload.
    pub(super) fn fail_unsent(
        &mut self,
        scattering: QueuedScattering,
        index: u32,
        reason: FailureReason,
    ) {
        let message = self.buffer.message_mut(scattering.first + u64::from(index));
        debug_assert!(!message.has_failed(), "a message fails once");
        let (to, payload_ref, len) = (message.to, message.fail(), message.len);
        self.buffer.release(payload_ref, len);
        self.failures.push_back(SendFailed {
            service: self.service,
            scattering: scattering.id,
            index: index as u16,
            to: self.peers.get(to as usize).to,
            timestamp: None,
            outcome: Outcome::Lost,
            reason,
        });
    }
}

impl Connection {
    /// Enters `state`, in which nothing is sent or waits to be.
    pub(super) fn close(&mut self, state: State) {
        self.state = state;
        self.reservation = Reservation::None;
        (self.wants_connect, self.wants_probe) = (false, None);
        self.reset_timeouts();
        self.deadline = None;
        (self.claimed, self.has_waiting) = (0, false);
    }
}
