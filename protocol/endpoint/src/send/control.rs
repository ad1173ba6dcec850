//! Opening connections, acknowledgements, probes, deadlines.

use core::hint::black_box;

use onepipe_base::{Incarnation, Mono, ProcessId, Psn};
use onepipe_wire::{AckView, Connect, Opcode, Probe, Service};

use super::Sender;
use super::connection::{Outgoing, Room, State};
use super::flight::SentMessage;
use super::keep::Kept;
use super::resend::RESENT_AT_ONCE;
use crate::stats::Stats;
use crate::{Config, Outcome, SendFailed};

/// While a frame is written the state of the connection this far behind is fetched.
const AHEAD: usize = 1;

/// A frame without messages that a connection wants to send.
pub(crate) struct ControlFrame {
    pub to: ProcessId,
    pub opcode: Opcode,
    pub psn: Psn,
    pub bytes: usize,
}

impl Sender {
    /// Writes the next connect or probe into `payload`.
    pub fn write_control(&mut self, payload: &mut [u8]) -> Option<ControlFrame> {
        while let Some(at) = self.control.pop_front() {
            if let Some(&soon) = self.control.get(AHEAD) {
                black_box(self.peers.peek(soon as usize).fetch());
            }
            let connection = self.peers.at(at as usize);
            connection.is_queued = false;
            let (to, psn) = (connection.to, connection.flight.base());
            let opcode_and_bytes = if core::mem::take(&mut connection.wants_connect) {
                let (reservation_id, reservation_bytes) = match connection.room {
                    Room::Asked(bytes) | Room::Granted(bytes) => (connection.reservation_id, bytes),
                    _ => (0, 0),
                };
                let connect = Connect { reservation_id, reservation_bytes };
                connect.write(payload).map(|bytes| (Opcode::Connect, bytes))
            } else if let Some(until) = connection.wants_probe.take() {
                let until = if until.is_before(psn) { psn } else { until };
                // While messages in room are on the way the room is not done with.
                let is_done = match connection.room {
                    Room::None | Room::Refused => true,
                    Room::InUse => connection.is_room_over(),
                    Room::Asked(_) | Room::Granted(_) => false,
                };
                let reservation_done = connection.reservation_id.wrapping_sub(u32::from(!is_done));
                let probe = Probe { resolved: psn, until, reservation_done };
                probe.write(payload).map(|bytes| (Opcode::Probe, bytes))
            } else {
                connection.write_recalls(payload).map(|bytes| (Opcode::Recall, bytes))
            };
            if connection.wants_probe.is_some() || connection.wants_recall() {
                self.queue_control(at as usize);
            }
            if let Some((opcode, bytes)) = opcode_and_bytes {
                return Some(ControlFrame { to, opcode, psn, bytes });
            }
        }
        None
    }

    /// Takes in an ACK, NAK or grant from `from`. Answers false when it is not about this life.
    pub fn on_ack(
        &mut self,
        config: &Config,
        now: Mono,
        from: (ProcessId, Incarnation),
        opcode: Opcode,
        view: &AckView<'_>,
    ) -> bool {
        let Some(at) = self.peers.find(from.0) else { return false };
        let connection = self.peers.at(at);
        if view.ack.connection != config.incarnation.0 {
            return false;
        }
        let (failures, to) = (&mut self.failures, connection.to);
        match connection.state {
            State::Opening | State::Unreachable(_)
                if opcode == Opcode::Grant
                    && !connection.is_past(from.1)
                    && !connection.has_failed(from.1) =>
            {
                connection.open(from.1, |message| {
                    failures.push_back(failed(to, message, Outcome::Unknown));
                });
            }
            State::Open if connection.peer == Some(from.1) => {}
            _ => return false,
        }
        let (broken, lost) = (&mut self.broken, &mut self.done);
        let fail = |message: SentMessage, kept: Option<Kept>| match kept {
            Some(kept) => broken.push(kept.scattering),
            None => failures.push_back(failed(to, message, Outcome::Lost)),
        };
        // A scattering that is broken is taken back before it is settled by that.
        let lost = |kept| lost.push(kept);
        let (buffer, commit) = (&mut self.buffer, &mut self.commit);
        let done = |kept: Kept| {
            buffer.release(kept.place, kept.bytes);
            commit.settle(kept.scattering);
        };
        let settled = connection.flight.on_ack(view, fail, lost, done);
        let Some(settled) = settled else { return false };
        connection.on_direct_answer();
        connection.failed += settled.fenced_in_window;
        let has_window = connection.on_window(&view.ack);
        let has_room = connection.on_room(&view.ack);
        if let Some(sent) = settled.newest_sent {
            connection.on_round_trip(now, sent);
        }
        connection.attempts = 0;
        let counters = (view.ack.received, view.ack.marked);
        let (base, next) = (connection.flight.base(), connection.flight.next());
        connection.congestion.on_ack(counters, settled.received_charge, base, next);
        if settled.fenced_charge > 0 {
            connection.congestion.on_loss(next);
        }
        if settled.has_stale_fence {
            connection.wants_probe = connection.wants_probe.or(Some(base));
        }
        // A packet is lost when enough later ones have arrived (links are FIFO unless declared
        // otherwise): ask at once, the receiver fences what it does not have.
        if let Some(highest) = settled.highest_received
            && config.reorder_packets > 0
        {
            let until = highest.plus(1u32.wrapping_sub(config.reorder_packets));
            if base.is_before(until) && connection.probed.is_before(until) {
                connection.probed = until;
                match self.service {
                    Service::BestEffort => connection.wants_probe = Some(until),
                    Service::Reliable => {
                        connection.flight.send_again(None, Some(until), RESENT_AT_ONCE);
                        connection.congestion.on_loss(next);
                        self.queue_resend(at);
                    }
                }
            }
        }
        let connection = self.peers.at(at);
        if connection.probed.is_before(base) {
            connection.probed = base;
        }
        if connection.is_room_over() {
            connection.wants_probe = connection.wants_probe.or(Some(base));
        }
        let wants_probe = connection.wants_probe.is_some();
        let is_idle = connection.is_idle();
        let progressed = settled.received_charge > 0 || settled.fenced_charge > 0;
        // Without progress the deadline stands: answers alone must not put the question off.
        if is_idle || progressed {
            connection.deadline = None;
        }
        let is_unarmed = connection.deadline.is_none();
        if wants_probe {
            self.queue_control(at);
        }
        if !is_idle && is_unarmed {
            self.arm(config, now, at);
        }
        if self.service == Service::Reliable {
            if self.peers.at(at).flight.resume_sending_again(RESENT_AT_ONCE) {
                self.queue_resend(at);
            }
            self.settle_kept(config, now);
        }
        if has_window || has_room || progressed || opcode == Opcode::Grant {
            self.credit.reconsider();
        }
        true
    }

    /// The receiver says that it knows no such connection: it has restarted.
    pub fn on_reset(
        &mut self,
        config: &Config,
        now: Mono,
        from: (ProcessId, Incarnation),
        psn: Psn,
        stats: &mut Stats,
    ) {
        // Who has restarted is declared failed first: until then nothing is given up.
        if self.service == Service::Reliable {
            return;
        }
        let Some(at) = self.peers.find(from.0) else { return };
        let connection = self.peers.at(at);
        // The life that granted the window does not forget, and a former life is over.
        if connection.is_past(from.1) || connection.peer == Some(from.1) {
            return;
        }
        let is_on_the_way =
            psn.since(connection.flight.base()) >= 0 && !connection.flight.next().is_before(psn);
        if connection.state == State::Open && is_on_the_way && !connection.is_local {
            stats.peers_unreachable += 1;
            self.give_up(at);
            self.peers.at(at).state = State::Closed;
            if self.peers.peek(at).is_waited_for {
                self.start_opening(config, now, at);
            }
        }
    }

    /// The earliest time at which something must be asked again, or earlier.
    pub fn deadline(&self) -> Option<Mono> {
        self.deadline
    }

    /// Asks, asks again, or gives up, wherever a deadline has passed.
    pub fn on_timeout(&mut self, config: &Config, now: Mono, stats: &mut Stats) {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        self.deadline = None;
        for at in 0..self.peers.len() {
            match self.peers.peek(at).deadline {
                Some(deadline) if deadline <= now => self.on_deadline(config, now, at, stats),
                Some(deadline) => self.note_deadline(deadline),
                None => {}
            }
        }
    }

    fn on_deadline(&mut self, config: &Config, now: Mono, at: usize, stats: &mut Stats) {
        let connection = self.peers.at(at);
        connection.deadline = None;
        if let State::Closed | State::Unreachable(_) = connection.state {
            // The rest of a burst that was under way when the connection was given up.
            self.give_up(at);
            return;
        }
        let patience_ns = connection.patience_ns(config);
        let oldest = connection.flight.oldest_sent();
        if connection.attempts == 0
            && let Some(oldest) = oldest
            && oldest.after_ns(patience_ns) > now
        {
            connection.deadline = Some(oldest.after_ns(patience_ns));
            self.note_deadline(oldest.after_ns(patience_ns));
            return;
        }
        if self.service == Service::Reliable {
            return self.ask_reliably(config, now, at, stats);
        }
        if connection.attempts >= config.probes_max {
            stats.peers_unreachable += 1;
            self.give_up(at);
            let connection = self.peers.at(at);
            connection.state = State::Unreachable(now.after_ns(connection.pause_ns(config)));
            return;
        }
        connection.attempts += 1;
        connection.asked = Some(now);
        // Room that was granted is kept alive.
        let is_asking = connection.is_asking_for_room();
        if connection.state == State::Opening || is_asking {
            connection.wants_connect = true;
        }
        if connection.state == State::Open {
            let overdue = Mono::from_ns(now.as_ns().saturating_sub(config.probe_timeout_min_ns));
            connection.wants_probe = Some(connection.flight.first_sent_after(overdue));
        }
        self.queue_control(at);
        self.arm(config, now, at);
    }

    /// Everything on the way to `at` may or may not arrive; what waits for it will not leave.
    fn give_up(&mut self, at: usize) {
        let connection = self.peers.at(at);
        let (failures, to) = (&mut self.failures, connection.to);
        connection.flight.give_up(|message| {
            failures.push_back(failed(to, message, Outcome::Unknown));
        });
        connection.room = Room::None;
        connection.attempts = 0;
        (connection.wants_connect, connection.wants_probe) = (false, None);
        self.credit.reconsider();
    }

    pub(super) fn start_opening(&mut self, config: &Config, now: Mono, at: usize) {
        if !self.peers.peek(at).flight.is_accounted_for() {
            self.give_up(at);
        }
        let connection = self.peers.at(at);
        connection.state = State::Opening;
        connection.attempts = 0;
        connection.asked = Some(now);
        connection.wants_connect = true;
        self.queue_control(at);
        self.arm(config, now, at);
    }

    /// A peer that did not answer is asked whether it is back, while messages to it fail.
    pub(super) fn ask_whether_back(&mut self, config: &Config, now: Mono, at: usize) {
        let connection = self.peers.at(at);
        connection.state = State::Unreachable(now.after_ns(connection.pause_ns(config)));
        connection.wants_connect = true;
        self.queue_control(at);
    }

    /// The world knows that this peer is gone, in lives up to `incarnation`: nobody waits for it.
    pub fn on_gone(&mut self, process: ProcessId, incarnation: Incarnation, stats: &mut Stats) {
        if self.service == Service::Reliable {
            return;
        }
        let Some(at) = self.peers.find(process) else { return };
        let connection = self.peers.peek(at);
        let is_over = connection.peer.is_none_or(|peer| peer <= incarnation);
        let is_used = matches!(connection.state, State::Opening | State::Open);
        if !connection.is_local && is_over && is_used {
            stats.peers_unreachable += 1;
            self.give_up(at);
            let connection = self.peers.at(at);
            connection.deadline = None;
            connection.state = State::Unreachable(Mono::from_ns(0));
        }
    }

    /// A peer has opened its own connection to this process: it is back.
    pub fn on_back(&mut self, process: ProcessId, incarnation: Incarnation) {
        let Some(at) = self.peers.find(process) else { return };
        let connection = self.peers.at(at);
        if let Some(known) = &mut connection.reliable {
            known.heard_life = known.heard_life.max(Some(incarnation));
        }
        if matches!(connection.state, State::Unreachable(_)) && !connection.has_failed(incarnation)
        {
            connection.state = State::Closed;
        }
    }

    pub(super) fn queue_control(&mut self, at: usize) {
        let connection = self.peers.at(at);
        if !core::mem::replace(&mut connection.is_queued, true) {
            self.control.push_back(at as u32);
        }
    }

    /// Sets the connection's deadline one patience ahead.
    pub(super) fn arm(&mut self, config: &Config, now: Mono, at: usize) {
        let connection: &mut Outgoing = self.peers.at(at);
        if connection.is_local {
            return;
        }
        // Counted from the oldest packet, so that a loss is found out while others arrive.
        let since = connection.flight.oldest_sent().max(connection.asked).unwrap_or(now);
        let deadline = since.after_ns(connection.patience_ns(config)).max(now.after_ns(1));
        connection.deadline = Some(deadline);
        self.note_deadline(deadline);
    }

    pub(super) fn note_deadline(&mut self, deadline: Mono) {
        self.deadline = Some(self.deadline.map_or(deadline, |earliest| earliest.min(deadline)));
    }
}

fn failed(to: ProcessId, message: SentMessage, outcome: Outcome) -> SendFailed {
    SendFailed {
        service: Service::BestEffort,
        scattering: message.scattering,
        index: message.index,
        to,
        timestamp: Some(message.timestamp),
        outcome,
    }
}
