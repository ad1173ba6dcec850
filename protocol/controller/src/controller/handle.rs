//! Handling of frames.

use alloc::vec::Vec;

use onepipe_base::{Address, Instance, Mono, Now, Port, ProcessId, Psn, Timestamp, Verdict};
use onepipe_wire::{
    AnnounceView, FloodAck, Frame, HEADER_LEN, Header, Opcode, Undeliverable, parse_header,
};

use super::Controller;
use crate::Links;
use crate::graph::Announced;
use crate::recorder::RecallBatch;
use crate::recovery::RecoveryReply;
use crate::send_queue::OutgoingFrame;

impl Controller {
    pub(super) fn on_frame(&mut self, now: Now, port: Port, bytes: &[u8]) -> Verdict {
        let Ok(frame) = Frame::parse(bytes) else {
            self.stats.dropped_malformed += 1;
            return Verdict::Dropped;
        };
        if port.0 >= self.config.links.ports() {
            self.stats.dropped_foreign += 1;
            return Verdict::Dropped;
        }
        self.on_received(now.mono);
        let result = match frame.opcode {
            opcode if opcode.is_hop_only() => self.on_hop_only(now, port, &frame),
            _ if frame.header.dst() != self.config.process => Err(DropReason::Foreign),
            _ => self.on_message(now, &frame),
        };
        match result {
            Ok(()) => {
                self.stats.frames_taken += 1;
                Verdict::Consumed
            }
            Err(reason) => {
                let counter = match reason {
                    DropReason::Malformed => &mut self.stats.dropped_malformed,
                    DropReason::Foreign => &mut self.stats.dropped_foreign,
                    DropReason::Stale => &mut self.stats.dropped_stale,
                    DropReason::Range => &mut self.stats.dropped_range,
                    DropReason::Standby => &mut self.stats.dropped_standby,
                    DropReason::Full => &mut self.stats.dropped_full,
                    DropReason::Excessive => &mut self.stats.dropped_excessive,
                };
                *counter += 1;
                Verdict::Dropped
            }
        }
    }

    //= spec/failure.md#R17
    /// Notes that a frame was received. After a stall in which nothing was received, pending pings
    /// get their whole timeout again.
    pub(super) fn on_received(&mut self, now: Mono) {
        if self.own_links.on_received(now, &self.config) {
            self.pings.extend_all(now, self.ping_timeout_ns(now));
        }
    }

    fn on_hop_only(&mut self, now: Now, port: Port, frame: &Frame<'_>) -> Result<(), DropReason> {
        let sender = frame.header.sender().ok_or(DropReason::Malformed)?;
        self.check_range(sender)?;
        self.own_links.set_peer(port, sender);
        if let (Links::Mesh(_), Address::Process(process)) = (self.config.links, sender.address)
            && u32::from(port.0) == process.0
        {
            self.on_alive(now.mono, process);
        }
        if frame.opcode == Opcode::FloodAck {
            let ack = FloodAck::parse(frame.payload).map_err(|_| DropReason::Malformed)?;
            if !self.term.is_active() {
                return Err(DropReason::Standby);
            }
            if !self.broadcast.on_flood_ack(now.mono, port, ack) {
                return Err(DropReason::Stale);
            }
        }
        Ok(())
    }

    fn on_message(&mut self, now: Now, frame: &Frame<'_>) -> Result<(), DropReason> {
        let instance = frame.header.sender().ok_or(DropReason::Malformed)?;
        self.check_range(instance)?;
        if frame.opcode == Opcode::Announce {
            return self.on_announce(now, instance, frame);
        }
        let Address::Process(process) = instance.address else { return Err(DropReason::Foreign) };
        let has_failed = self.decisions.has_failed(instance);
        let is_superseded =
            self.graph.newest(instance.address).is_some_and(|newest| newest > instance);
        if frame.opcode == Opcode::Recover {
            return self.on_recover(now, instance, process, frame.header.psn());
        }
        if has_failed || is_superseded {
            return Err(DropReason::Stale);
        }
        self.on_alive(now.mono, process);
        match frame.opcode {
            Opcode::Completed | Opcode::Relay | Opcode::Undeliverable if !self.term.is_active() => {
                Err(DropReason::Standby)
            }
            Opcode::Completed => {
                let ack = FloodAck::parse(frame.payload).map_err(|_| DropReason::Malformed)?;
                let is_outstanding = self.broadcast.on_completed(now.mono, process, ack);
                is_outstanding.then_some(()).ok_or(DropReason::Stale)
            }
            Opcode::Pong => Ok(()),
            Opcode::Relay => self.on_relay(now, frame.payload),
            //= spec/failure.md#R61
            // The log may be outdated, and the recall would be lost with it: the sender repeats it.
            Opcode::Undeliverable if self.term.is_comparing() || !self.has_announced(instance) => {
                Err(DropReason::Standby)
            }
            Opcode::Undeliverable => {
                self.on_undeliverable(now.sync, process, frame.header.psn(), frame.payload)
            }
            _ => Err(DropReason::Foreign),
        }
    }

    fn has_announced(&self, instance: Instance) -> bool {
        self.graph.get(instance).is_some_and(|node| node.generation.is_some())
    }

    fn check_range(&self, instance: Instance) -> Result<(), DropReason> {
        let is_in_range = match instance.address {
            Address::Process(process) => process.0 < self.config.processes_max,
            Address::Switch(switch) => switch.0 < self.config.switches_max,
        };
        is_in_range.then_some(()).ok_or(DropReason::Range)
    }

    fn on_announce(
        &mut self,
        now: Now,
        instance: Instance,
        frame: &Frame<'_>,
    ) -> Result<(), DropReason> {
        if let Address::Process(process) = instance.address {
            if self.config.controllers.contains(process) {
                return Err(DropReason::Foreign);
            }
            if self.decisions.has_failed(instance) {
                self.notify_own_failure(process);
                return Err(DropReason::Stale);
            }
        }
        let view = AnnounceView::parse(frame.payload).map_err(|_| DropReason::Malformed)?;
        if view
            .links(now.sync)
            .any(|link| link.instance.is_some_and(|instance| self.check_range(instance).is_err()))
        {
            return Err(DropReason::Range);
        }
        self.own_links.measure_gap(now.mono, &self.config, &self.graph, instance);
        self.note_return(now.mono, instance);
        let decisions = &self.decisions;
        let is_over = |instance| decisions.is_resolved(instance);
        match self.graph.announce(now.mono, instance, &view, now.sync, is_over) {
            Announced::Stale => return Err(DropReason::Stale),
            Announced::Excessive => return Err(DropReason::Excessive),
            Announced::Partial | Announced::Unchanged => {}
            Announced::Changed { is_loss } => {
                self.stats.announcements += 1;
                self.schedule_evaluation(now.mono);
                if is_loss {
                    let soon = now.mono.after_ns(self.config.quiet_ns + self.config.retransmit_ns);
                    self.broadcast.restart_by(soon);
                }
            }
        }
        if let (Some(tip), Address::Process(_)) = (view.announce.tip, instance.address)
            && self.term.on_tip(tip, &self.config, &self.decisions)
        {
            self.refuse_log(now, tip);
        }
        if let Address::Process(process) = instance.address {
            self.graph.record_decided(instance, frame.header.message_ts(now.sync));
            self.on_alive(now.mono, process);
            self.ack_announce(instance, process);
        }
        let node = self.graph.get(instance);
        if self.term.is_active() && node.is_some_and(|node| node.has_joined && !node.is_recorded) {
            self.recorder.add_member(instance);
        }
        Ok(())
    }

    /// Handles evidence that the current incarnation of `process` is alive.
    pub(super) fn on_alive(&mut self, now: Mono, process: ProcessId) {
        self.pings.cancel(process);
        if let Some(instance) = self.graph.newest(Address::Process(process)) {
            self.own_links.measure_gap(now, &self.config, &self.graph, instance);
            self.graph.mark_seen(now, instance);
            if self.suspects.contains(instance) {
                self.schedule_evaluation(now);
            }
        }
    }

    //= spec/failure.md#R34
    /// Acknowledges the announcements of a process, once the store knows the process and the
    /// process knows all failures.
    pub(super) fn ack_announce(&mut self, instance: Instance, process: ProcessId) {
        let is_recorded = self
            .graph
            .get(instance)
            .is_some_and(|node| node.generation.is_some() && node.has_joined && node.is_recorded);
        if self.term.is_active()
            && is_recorded
            && !self.plan.requires_notice()
            && !self.recorder.is_recording(instance)
            && !self.broadcast.is_pending(process)
        {
            let psn = Psn(instance.incarnation.0);
            self.enqueue_frame(Opcode::AnnounceAck, process, psn, self.tip_payload());
        }
    }

    //= spec/failure.md#R29
    fn on_relay(&mut self, now: Now, payload: &[u8]) -> Result<(), DropReason> {
        let (header, opcode) = parse_header(payload).map_err(|_| DropReason::Malformed)?;
        if opcode.is_control() || opcode.is_hop_only() {
            return Err(DropReason::Malformed);
        }
        let to = header.dst();
        let bytes = HEADER_LEN + header.length();
        let known = self.graph.newest(Address::Process(to));
        if self.config.controllers.contains(to)
            || known.is_none_or(|instance| self.decisions.has_failed(instance))
            || HEADER_LEN + bytes > self.config.frame_len_max
        {
            self.stats.relays_refused += 1;
            return Ok(());
        }
        self.pings.start(now.mono, to, self.ping_timeout_ns(now.mono), true);
        self.stats.relayed += 1;
        self.enqueue_frame(Opcode::Relayed, to, Psn::FIRST, payload[..bytes].to_vec());
        Ok(())
    }

    //= spec/failure.md#R26
    fn on_undeliverable(
        &mut self,
        near: Timestamp,
        sender: ProcessId,
        psn: Psn,
        payload: &[u8],
    ) -> Result<(), DropReason> {
        let all = Undeliverable::parse(payload, near).map_err(|_| DropReason::Malformed)?;
        let is_new = |entry: &Undeliverable| !self.decisions.has_recall(sender, *entry);
        let entries: Vec<Undeliverable> = all.filter(is_new).collect();
        if entries.is_empty() {
            self.enqueue_frame(Opcode::UndeliverableAck, sender, psn, self.tip_payload());
            return Ok(());
        }
        if entries.iter().any(|entry| entry.to.0 >= self.config.processes_max) {
            return Err(DropReason::Range);
        }
        let batch = RecallBatch { sender, psn };
        let is_queued = self.recorder.recall(batch, entries, self.config.queue_max);
        is_queued.then_some(()).ok_or(DropReason::Full)
    }

    /// Answers a failed process that asks for the failures and recalls it has to know. Its own
    /// failure must be completed by all: from then on every scattering that it may have buffered
    /// below the reported timestamp is acknowledged, recalled and recorded, or of a failed process.
    fn on_recover(
        &mut self,
        now: Now,
        instance: Instance,
        process: ProcessId,
        part: Psn,
    ) -> Result<(), DropReason> {
        //= spec/failure.md#R61
        // The log may be outdated, and the reply would lack recalls.
        if !self.term.is_active() || self.term.is_comparing() {
            return Err(DropReason::Standby);
        }
        // The first reply stays valid, whatever is decided later: no later failure or recall
        // concerns what it reports as complete, and the process receives nothing meanwhile. A new
        // reply would make the process request all parts again.
        if self.recovery_replies.get(instance).is_none() {
            let reply = match self.recorder.is_deciding() {
                true => None,
                false => RecoveryReply::collect(now, instance, &self.graph, &self.decisions),
            };
            let reply = reply.ok_or(DropReason::Stale)?;
            self.recovery_replies.start(instance, reply, self.config.queue_max);
        }
        let mut buf = alloc::vec![0; self.config.payload_len_max()];
        let reply = self.recovery_replies.get(instance).ok_or(DropReason::Full)?;
        let bytes = reply.write(part.0, &mut buf).ok_or(DropReason::Stale)?;
        buf.truncate(bytes);
        self.stats.recoveries += 1;
        self.enqueue_frame(Opcode::Recovery, process, part, buf);
        Ok(())
    }

    /// Queues a frame for one process; drops it when the queue is full.
    pub(super) fn enqueue_frame(
        &mut self,
        opcode: Opcode,
        to: ProcessId,
        psn: Psn,
        payload: Vec<u8>,
    ) {
        let frame = OutgoingFrame { opcode, to, psn, payload };
        if !self.send_queue.push(frame, self.config.queue_max) {
            self.stats.dropped_full += 1;
        }
    }

    /// Returns the header of a frame of this controller.
    pub(super) fn header(&self, opcode: Opcode, to: ProcessId) -> Header {
        Header::new(opcode, self.config.process, to, self.config.incarnation)
    }
}

/// Why a frame is dropped.
enum DropReason {
    Malformed,
    Foreign,
    Stale,
    Range,
    Standby,
    Full,
    Excessive,
}
