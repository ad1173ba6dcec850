//! Handles failures of links and processes: freeze, discard, recall, callback, resume
//! (docs/design/failure.md).

use onepipe_base::{
    Cause, Incarnation, Instance, Mono, Now, Port, ProcessId, ScatteringId, Timestamp, Transmit,
};
use onepipe_wire::{Flags, Frame, HEADER_LEN, Header, Opcode, Service, seal, seal_with_hops};

use super::Endpoint;
use crate::channel::Draft;
use crate::control::{Handled, LinkEvent};
use crate::timestamp::NO_PROMISE_AGE_NS;
use crate::{ControlStats, Event, FailureReason, Links, ProcessFailed, ProcessLeft};

/// Progress of this process's own exclusion after it was declared failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Exclusion {
    Member,
    /// Declared failed at this timestamp; the application is not notified yet. The second field is
    /// the commit barrier at that moment: this process does not know later outcomes.
    Excluded(Timestamp, Option<Timestamp>),
    /// The application was notified and may call [`Endpoint::recover`].
    Notified(Option<Timestamp>),
    /// Every message below this timestamp may be delivered: the outcomes of all of them are known.
    Recovered(Timestamp),
    /// Every message below this timestamp was delivered.
    Finished(Timestamp),
}

impl Endpoint {
    /// Returns the active controller, when it was last seen, and its epoch. `None` if no controller
    /// was seen: then failures are not resolved.
    pub fn controller(&self) -> Option<(ProcessId, Mono, u32)> {
        let last_seen = self.control.controller_last_seen()?;
        Some((self.control.active_controller()?, last_seen, self.control.epoch()))
    }

    /// Returns whether reliable scatterings are sent: the controllers have registered this
    /// incarnation, or there are no controllers. Until then [`Endpoint::scatter_reliably`] accepts
    /// scatterings, which wait.
    pub fn is_registered(&self) -> bool {
        self.control.is_registered()
    }

    //= spec/failure.md#R59
    /// Cancels a reliable scattering: it is recalled at its receivers, and
    /// [`crate::Event::SendFailed`] follows for each message once its outcome is known, unless all
    /// receivers have acknowledged the scattering meanwhile. Returns false if the scattering has an
    /// outcome already, was recalled, or never existed.
    pub fn cancel(&mut self, scattering: ScatteringId) -> bool {
        self.is_member() && self.reliable.sender.cancel(scattering)
    }

    /// Returns whether a controller was seen lately, that resolves failures.
    pub(super) fn is_controlled(&self, now: Mono) -> bool {
        let limit_ns = self.config.give_up_after_ns;
        let last_seen = self.control.controller_last_seen();
        last_seen.is_some_and(|last_seen| limit_ns == 0 || now.since_ns(last_seen) < limit_ns)
    }

    //= spec/failure.md#R58
    /// Notes whether new reliable scatterings may be sent.
    #[inline]
    pub(super) fn check_blocked(&mut self, now: Mono) {
        if !self.reliable.is_used() {
            return;
        }
        if self.may_commit() {
            return self.reliable.sender.on_unblocked();
        }
        let reason = match self.is_registered() {
            true => FailureReason::NoCommitBarrier,
            false => FailureReason::NoController,
        };
        self.reliable.sender.on_blocked(&self.config, now, reason);
    }

    /// Returns the counters of the control plane and of link states since the start.
    pub fn control_stats(&self) -> &ControlStats {
        self.control.stats()
    }

    /// Completes the callback of an [`Event::ProcessFailed`]. Reliable deliveries resume when every
    /// correct process has completed its callbacks for all failures.
    pub fn on_failure_handled(&mut self) {
        self.callbacks_open = self.callbacks_open.saturating_sub(1);
    }

    //= spec/failure.md#R33
    /// After [`Event::Excluded`]: asks the controllers for the outcomes of the messages that are
    /// still in the receive buffer. They are delivered or dropped as at every other process; then
    /// [`Event::Recovered`] follows, and this incarnation ends.
    pub fn recover(&mut self, now: Now) {
        self.timestamps.read(now);
        if matches!(self.exclusion, Exclusion::Notified(_)) {
            self.control.start_recover(now.mono);
        }
    }

    /// Handles the incarnation of the peer on `port` where promises arrive without frames. Must be
    /// called before the first promise of that incarnation.
    pub fn handle_peer(&mut self, now: Now, port: Port, incarnation: Incarnation) {
        self.timestamps.read(now);
        let address = onepipe_base::Address::Process(ProcessId(u32::from(port.0)));
        let instance = Instance { address, incarnation };
        let event =
            self.control.on_peer_instance(self.link.registers_mut(), now.mono, port, instance);
        if event != LinkEvent::Good {
            self.on_peer_replaced(now, port, event);
        }
    }

    /// Returns whether this process is a member: it was not declared failed.
    pub fn is_member(&self) -> bool {
        self.exclusion == Exclusion::Member
    }

    /// Updates the state of a link from a received frame, before the frame is handled.
    #[inline]
    pub(super) fn on_link_frame(&mut self, now: Now, port: Port, frame: &Frame<'_>) -> LinkEvent {
        let registers = self.link.registers_mut();
        let event = self.control.on_link_frame(registers, now.mono, port, frame);
        if let LinkEvent::Restarted(_) | LinkEvent::Dead = event {
            self.on_peer_replaced(now, port, event);
        }
        event
    }

    /// The previous instance at the other end of `port` has died.
    #[cold]
    fn on_peer_replaced(&mut self, now: Now, port: Port, event: LinkEvent) {
        let new_barrier = self.link.refresh();
        self.on_barrier(new_barrier);
        if event == LinkEvent::Dead {
            self.lost_links.push_back(port);
            self.stats.links_lost += 1;
            self.link.restart_join(&self.config, now.mono);
        }
    }

    /// Applies the promises of a frame, unless its event or its UNFED flag forbids that.
    #[inline]
    pub(super) fn on_frame_promises(
        &mut self,
        now: Now,
        clock: Timestamp,
        port: Port,
        frame: &Frame<'_>,
        event: LinkEvent,
    ) {
        if frame.opcode.is_beacon() {
            self.link.set_peer_on_demand(frame.header.has(Flags::ON_DEMAND));
        }
        // A switch without inputs (UNFED) promises nothing.
        let is_unfed = frame.opcode.is_beacon() && frame.header.has(Flags::UNFED);
        if event == LinkEvent::NoPromise || is_unfed {
            return;
        }
        let mut promises = frame.header.promises(clock);
        if !self.control.is_two_way(port) {
            // The switch addresses the commit barrier to the previous incarnation of this process.
            promises.commit = clock.saturating_sub_ns(NO_PROMISE_AGE_NS);
        }
        let new_barrier = self.link.on_promises(&self.config, now.mono, port, promises);
        self.on_barrier(new_barrier);
        if event == LinkEvent::Left {
            self.on_link_down(port, Cause::Left);
        }
    }

    /// Handles a frame from the controllers.
    #[cold]
    pub(super) fn on_control(
        &mut self,
        now: Now,
        clock: Timestamp,
        port: Port,
        frame: &Frame<'_>,
    ) -> bool {
        let registers = self.link.registers_mut();
        let is_accepted = match self.control.on_frame(registers, now.mono, clock, port, frame) {
            Handled::Rejected => false,
            Handled::Accepted => true,
            Handled::LinksChanged => {
                let new_barrier = self.link.refresh();
                self.on_barrier(new_barrier);
                true
            }
            Handled::Relayed(inner) => {
                let is_reliable = inner.opcode.service() == Some(Service::Reliable);
                is_reliable && !self.is_failed(&inner) && self.on_message_frame(now, clock, &inner)
            }
        };
        self.handle_failures(now);
        is_accepted
    }

    /// Returns whether the frame is from an incarnation that has failed.
    #[inline]
    pub(super) fn is_failed(&self, frame: &Frame<'_>) -> bool {
        let (process, incarnation) = (frame.header.src(), frame.header.incarnation());
        self.control.failed_at(process, incarnation).is_some()
    }

    /// Discards and recalls messages for every newly reported failure, and completes finished ones.
    /// Does nothing during a burst: its frames were built for the set of receivers at its start.
    #[inline]
    pub(super) fn handle_failures(&mut self, now: Now) {
        // Failures are reported by controllers only.
        if self.config.controllers.is_some() && self.reliable.sender.unfinished_burst().is_none() {
            self.process_failures(now);
        }
    }

    //= spec/failure.md#R32
    fn process_failures(&mut self, now: Now) {
        let recorded = self.control.take_acked_undeliverable();
        if recorded > 0 {
            self.reliable.sender.on_undeliverable_ack(recorded);
        }
        while let Some(failure) = self.control.poll_failure() {
            let end = failure.first.0.saturating_add(failure.count).min(self.config.processes_max);
            for process in (failure.first.0..end).map(ProcessId) {
                if process != self.config.process {
                    let (incarnation, at, cause) = (failure.incarnation, failure.at, failure.cause);
                    self.on_failed(now, ProcessFailed { process, incarnation, at, cause });
                }
            }
        }
        // Exclusion waits for the end of a best-effort burst, after which every message of the
        // burst is recorded and can be reported.
        if let Some(at) = self.control.excluded()
            && self.exclusion == Exclusion::Member
            && self.best_effort.sender.unfinished_burst().is_none()
        {
            self.exclusion = Exclusion::Excluded(at, self.commit_barrier());
            self.control.on_stopped();
            self.best_effort.sender.abandon(at);
            self.reliable.sender.abandon(at);
        }
        if self.has_failure_step() {
            self.complete_failures();
        }
        if let Exclusion::Notified(commit) = self.exclusion {
            self.apply_recovery(commit);
        }
    }

    //= spec/failure.md#R25
    fn on_failed(&mut self, now: Now, failed: ProcessFailed) {
        let ProcessFailed { process, incarnation, at, cause } = failed;
        self.best_effort.sender.on_gone(process, incarnation, &mut self.stats);
        self.best_effort.receiver.on_gone(process, incarnation);
        self.reliable.sender.on_failed(&self.config, now.mono, process, incarnation);
        self.reliable.receiver.on_failed(process, incarnation, at);
        //= spec/failure.md#R51
        if cause == Cause::Left {
            self.stats.processes_left += 1;
            self.departed.push_back(ProcessLeft { process, incarnation, at });
        } else {
            self.stats.processes_failed += 1;
            self.failed.push_back(failed);
            self.callbacks_open += 1;
        }
    }

    /// Returns whether [`Endpoint::complete_failures`] has anything to do.
    #[inline]
    pub(super) fn has_failure_step(&self) -> bool {
        self.config.controllers.is_some()
            && (self.reliable.sender.has_undeliverable()
                || (self.control.is_completion_pending() && self.has_handled_all()))
    }

    //= spec/failure.md#R25
    /// Returns whether all callbacks have returned and all recalls are acknowledged.
    fn has_handled_all(&self) -> bool {
        let is_reported = self.callbacks_open == 0 && self.failed.is_empty();
        is_reported && self.reliable.sender.has_acked_recalls()
    }

    /// Passes undeliverable recalls to the controllers, and reports completion once every failure
    /// is handled.
    #[cold]
    fn complete_failures(&mut self) {
        let (sender, control) = (&mut self.reliable.sender, &mut self.control);
        sender.report_undeliverable(|recall| control.on_undeliverable(recall));
        if !sender.has_undeliverable() && control.is_completion_pending() && self.has_handled_all()
        {
            self.control.on_failures_handled();
        }
    }

    /// Applies the recovery record, if it is complete. `commit` is the commit barrier at the
    /// exclusion.
    #[cold]
    fn apply_recovery(&mut self, commit: Option<Timestamp>) {
        let Some(recovered) = self.control.poll_recovered() else { return };
        let receiver = &mut self.reliable.receiver;
        if let Some(at) = self.control.excluded() {
            receiver.on_excluded(self.config.process, at);
        }
        for (sender, timestamp) in &recovered.recalls {
            receiver.recall_recovered(*sender, *timestamp);
        }
        for failure in &recovered.failures {
            let end = failure.first.0.saturating_add(failure.count).min(self.config.processes_max);
            for process in (failure.first.0..end).map(ProcessId) {
                receiver.on_failed(process, failure.incarnation, failure.at);
            }
        }
        let complete = commit.map_or(recovered.complete, |commit| commit.max(recovered.complete));
        self.exclusion = Exclusion::Recovered(complete);
    }

    /// Returns the next event about a failure.
    pub(super) fn poll_failure_event(&mut self) -> Option<Event> {
        if let Exclusion::Excluded(at, commit) = self.exclusion {
            self.exclusion = Exclusion::Notified(commit);
            self.failed.clear();
            self.departed.clear();
            return Some(Event::Excluded(at));
        }
        let failed = self.failed.pop_front().map(Event::ProcessFailed);
        failed.or_else(|| self.departed.pop_front().map(Event::ProcessLeft))
    }

    /// Returns the event that ends recovery, once no message is left to deliver.
    #[inline]
    pub(super) fn poll_recovered_event(&mut self) -> Option<Event> {
        let Exclusion::Recovered(complete) = self.exclusion else { return None };
        self.exclusion = Exclusion::Finished(complete);
        Some(Event::Recovered(complete))
    }

    /// Returns whether [`Endpoint::poll_control`] may return a frame.
    #[inline]
    pub(super) fn has_control_frame(&self, now: Mono) -> bool {
        self.control.wants_transmit(self.link.registers())
            || self.control.deadline().is_some_and(|due| due <= now)
    }

    /// Returns the next frame to the controllers or on this process's links.
    pub(super) fn poll_control(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        if self.control.take_beacon(now.mono) {
            self.stats.beacons_sent += 1;
            return Some(self.poll_link_frame(now, slot, Opcode::Beacon));
        }
        let payload = &mut slot[HEADER_LEN..self.config.frame_len_max];
        let frame = self.control.write_next(now.mono, self.link.registers_mut(), payload)?;
        let (promises, commit) = (self.current_promises(), self.commit_barrier());
        let header = self.control.header(self.link.registers_mut(), &frame, promises, commit);
        self.stats.frames_sent += 1;
        Some(match frame.hop_port {
            Some(port) => {
                Transmit { port, bytes: seal_with_hops(slot, header, frame.payload_len, 1) }
            }
            None => {
                let port = self.control_port_to(frame.to);
                Transmit { port, bytes: seal(slot, header, frame.payload_len) }
            }
        })
    }

    //= spec/failure.md#R18
    /// Returns a frame about this process's uplink.
    pub(super) fn poll_link_frame(
        &mut self,
        now: Now,
        slot: &mut [u8],
        opcode: Opcode,
    ) -> Transmit {
        let port = Port(0);
        let peer = self.control.peer(self.link.registers_mut(), port);
        let is_held = self.link.registers().is_held(port);
        let flags = if is_held { Flags::PREVIOUS_HOLDS } else { 0 } | self.mode_flag();
        let promises = self.current_promises();
        let header = Header::hop_only(opcode, self.config.instance(), peer, promises);
        let header = match opcode {
            Opcode::Solicit => header.soliciting(self.awaited_timestamp()),
            _ => header,
        };
        let frame_len = seal_with_hops(slot, header.flagged(flags), 0, 1);
        self.stats.frames_sent += 1;
        self.link.on_sent(now.mono, promises, self.timestamps.is_started());
        Transmit { port, bytes: frame_len }
    }

    /// Sends a reliable frame by way of a controller if its receiver does not respond. Returns
    /// `None` when the frame goes directly.
    #[cold]
    pub(super) fn poll_relay(
        &mut self,
        now: Now,
        slot: &mut [u8],
        draft: &Draft,
    ) -> Option<Transmit> {
        // A controller relays to one process. The other receivers of a shared frame get it
        // directly, and this one gets its messages by the retransmission, a frame of its own.
        if draft.opcode.is_shared() || !self.control.is_relayed(now.mono, draft.to) {
            return None;
        }
        let header = draft.header(&self.config, self.current_promises());
        let frame_len = seal(slot, header, draft.payload_len);
        if !self.control.encapsulate(now.mono, draft.to, &slot[..frame_len]) {
            return None;
        }
        self.stats.frames_relayed += 1;
        self.poll_control(now, slot)
    }

    /// From now on, relays frames to receivers that do not respond.
    #[inline]
    pub(super) fn relay_unreachable(&mut self, now: Now) {
        while let Some(process) = self.reliable.sender.unreachable.pop() {
            self.control.on_unreachable(now.mono, process);
        }
    }

    /// Handles the loss of the link at `port`.
    pub(super) fn on_link_down(&mut self, port: Port, cause: Cause) {
        self.control.on_link_down(self.link.registers_mut(), port, cause);
        let new_barrier = self.link.refresh();
        self.on_barrier(new_barrier);
        if self.config.links == Links::Mesh {
            let process = ProcessId(u32::from(port.0));
            let any_incarnation = Incarnation(u32::MAX);
            self.best_effort.sender.on_gone(process, any_incarnation, &mut self.stats);
            self.best_effort.receiver.on_gone(process, any_incarnation);
            self.reliable.receiver.on_recalls_ended(process);
        }
    }
}
