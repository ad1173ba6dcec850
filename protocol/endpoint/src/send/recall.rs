//! Taking scatterings back: because a receiver has failed, or one of their messages came too late.

use onepipe_base::{Incarnation, Mono, ProcessId, Timestamp};
use onepipe_wire::Undeliverable;

use super::Sender;
use super::connection::{Room, State};
use crate::{Config, Outcome, SendFailed};

impl Sender {
    /// Frees what an acknowledgement has settled, and takes back what it has broken.
    pub(super) fn settle_kept(&mut self, config: &Config, now: Mono) {
        while let Some(number) = self.broken.pop() {
            self.take_back(config, now, number);
        }
        while let Some(kept) = self.done.pop() {
            self.buffer.release(kept.place, kept.octets);
            self.commit.settle(kept.scattering);
        }
    }

    /// Every life of `process` up to `incarnation` has failed: nothing more is sent to it, and the
    /// scatterings that it has not acknowledged are taken back everywhere. Not while a burst is
    /// under way.
    pub fn on_failed(
        &mut self,
        config: &Config,
        now: Mono,
        process: ProcessId,
        incarnation: Incarnation,
    ) {
        debug_assert!(self.burst.first().is_none(), "a burst ends before failures are handled");
        let Some(at) = self.peers.find(process) else { return };
        let connection = self.peers.at(at);
        if connection.is_local || connection.peer.is_some_and(|peer| peer > incarnation) {
            return;
        }
        connection.state = State::Unreachable(Mono::from_ns(u64::MAX));
        connection.room = Room::None;
        (connection.wants_connect, connection.wants_probe) = (false, None);
        (connection.attempts, connection.deadline) = (0, None);
        (connection.claimed, connection.is_waited_for) = (0, false);
        let (broken, done) = (&mut self.broken, &mut self.done);
        connection.flight.abandon(|_, kept| {
            broken.push(kept.scattering);
            done.push(kept);
        });
        let peer = connection.peer.unwrap_or(Incarnation(0));
        if let Some(known) = &mut connection.reliable {
            known.failed_life = Some(incarnation);
            known.wants_recall = false;
            for (number, timestamp) in known.recalls.drain(..) {
                self.recalls_open -= 1;
                self.commit.settle(number);
                self.undeliverable.push(Undeliverable {
                    to: process,
                    incarnation: peer,
                    timestamp,
                });
            }
        }
        self.settle_kept(config, now);
        self.credit.reconsider();
    }

    /// Takes the scattering with this number back, once: reports each of its messages, and asks
    /// each of its receivers not to deliver it.
    fn take_back(&mut self, config: &Config, now: Mono, number: u64) {
        if !self.commit.recall(number) {
            return;
        }
        let Some(open) = self.commit.get(number).copied() else { return };
        let mut targets = core::mem::take(&mut self.targets);
        self.commit.targets(number, &mut targets);
        for target in &targets {
            let connection = self.peers.at(target.to as usize);
            self.failures.push_back(SendFailed {
                service: self.service,
                scattering: open.id,
                index: target.index,
                to: connection.to,
                timestamp: Some(open.timestamp),
                outcome: Outcome::Lost,
            });
            if connection.is_local {
                self.local_recalls.push(open.timestamp);
                continue;
            }
            let (to, peer) = (connection.to, connection.peer.unwrap_or(Incarnation(0)));
            let Some(known) = &mut connection.reliable else { continue };
            // Several messages to one receiver are taken back together.
            if known.recalls.iter().any(|(known, _)| *known == number) {
                continue;
            }
            if known.failed_life.is_some_and(|failed| peer <= failed) {
                let timestamp = open.timestamp;
                self.undeliverable.push(Undeliverable { to, incarnation: peer, timestamp });
                continue;
            }
            known.recalls.push((number, open.timestamp));
            known.wants_recall = true;
            self.recalls_open += 1;
            self.commit.expect(number);
            self.queue_control(target.to as usize);
            self.arm(config, now, target.to as usize);
        }
        self.targets = targets;
    }

    /// A receiver has acknowledged recalls.
    pub fn on_recall_ack(
        &mut self,
        from: (ProcessId, Incarnation),
        timestamps: impl Iterator<Item = Timestamp>,
    ) -> bool {
        let Some(at) = self.peers.find(from.0) else { return false };
        let connection = self.peers.at(at);
        if connection.peer != Some(from.1) {
            return false;
        }
        connection.attempts = 0;
        let Some(known) = &mut connection.reliable else { return false };
        for timestamp in timestamps {
            let recall = known.recalls.iter().position(|(_, recalled)| *recalled == timestamp);
            if let Some(recall) = recall {
                let (number, _) = known.recalls.swap_remove(recall);
                self.recalls_open -= 1;
                self.commit.settle(number);
            }
        }
        known.is_unreachable = false;
        known.wants_recall &= !known.recalls.is_empty();
        true
    }

    /// Whether every recall is acknowledged.
    pub fn has_recalled_all(&self) -> bool {
        self.recalls_open == 0
    }
}
