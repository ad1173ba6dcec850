//! What an endpoint does when links and processes die: freeze, discard, recall, call back, resume
//! (design: docs/design/failure.md).

use onepipe_base::{Incarnation, Instance, Mono, Now, Port, ProcessId, Timestamp, Transmit};
use onepipe_wire::{Flags, Frame, HEADER_LEN, Header, Opcode, Service, seal, seal_with_hops};

use super::Endpoint;
use crate::channel::Draft;
use crate::control::{Handled, LinkEvent};
use crate::timestamp::NO_PROMISE_AGE_NS;
use crate::{ControlStats, Event, Links, ProcessFailed};

/// How far a process has got with having failed itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Exclusion {
    Member,
    /// Since this timestamp; the application has not been told. Behind it, the commit barrier of
    /// that moment: what the others have decided since is not known here.
    Excluded(Timestamp, Option<Timestamp>),
    /// The application knows, and may ask what it needs to finish.
    Notified(Option<Timestamp>),
    /// Everything below this may be delivered: the fates of all of it are known.
    Recovered(Timestamp),
    /// It has been delivered.
    Finished(Timestamp),
}

impl Endpoint {
    /// The controller that was last heard as the active one, when, and its epoch; `None` while none
    /// was: then nobody resolves failures.
    pub fn controller(&self) -> Option<(ProcessId, Mono, u32)> {
        let last_seen = self.control.controller_last_seen()?;
        Some((self.control.active_controller()?, last_seen, self.control.epoch()))
    }

    /// Whether reliable scatterings leave: the controllers have taken note of this life, or there
    /// are none. Before that [`Endpoint::scatter_reliably`] accepts, and what it accepts waits.
    pub fn is_registered(&self) -> bool {
        self.control.is_registered()
    }

    /// Counters of what the controllers and the links have told, since the start.
    pub fn control_stats(&self) -> &ControlStats {
        self.control.stats()
    }

    /// The application is through with an [`Event::ProcessFailed`]. Reliable deliveries resume when
    /// every correct process has said so of every failure.
    pub fn on_failure_handled(&mut self) {
        self.callbacks_open = self.callbacks_open.saturating_sub(1);
    }

    /// After [`Event::Excluded`]: asks the controllers what has become of the messages that are
    /// still in the receive buffer. They are delivered or dropped as everywhere else, and
    /// [`Event::Recovered`] follows. Then this life is over.
    pub fn recover(&mut self, now: Now) {
        self.timestamps.read(now);
        if matches!(self.exclusion, Exclusion::Notified(_)) {
            self.control.start_recover(now.mono);
        }
    }

    /// The world knows which life is at the other end of `port`, where promises lie in memory and
    /// no frame need say it. To be told before its first promise, and again when it has changed.
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

    /// Whether this process takes part: it was not declared failed.
    pub fn is_member(&self) -> bool {
        self.exclusion == Exclusion::Member
    }

    /// Notes what a frame shows about its link, before anything else is made of it.
    #[inline]
    pub(super) fn on_link_frame(&mut self, now: Now, port: Port, frame: &Frame<'_>) -> LinkEvent {
        let registers = self.link.registers_mut();
        let shown = (frame.header, frame.opcode);
        let event = self.control.on_link_frame(registers, now.mono, port, shown);
        if let LinkEvent::Restarted(_) | LinkEvent::Dead = event {
            self.on_peer_replaced(now, port, event);
        }
        event
    }

    /// The life that was at the other end of `port` is dead.
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

    /// Takes in the promises of a frame, unless its link is not to be heard.
    #[inline]
    pub(super) fn on_frame_promises(
        &mut self,
        now: Now,
        clock: Timestamp,
        port: Port,
        (frame, event): (&Frame<'_>, LinkEvent),
    ) {
        // A switch that nothing feeds promises nothing: the mark that it bears counts nowhere.
        let is_unfed = frame.opcode == Opcode::Beacon && frame.header.has(Flags::UNFED);
        if event == LinkEvent::NoPromise || is_unfed {
            return;
        }
        let mut promises = frame.header.promises(clock);
        if !self.control.is_two_way(port) {
            // What the switch tells is meant for whoever was here before.
            promises.commit = clock.saturating_sub_ns(NO_PROMISE_AGE_NS);
        }
        let new_barrier = self.link.on_promises(&self.config, now.mono, port, promises);
        self.on_barrier(new_barrier);
        if event == LinkEvent::Left {
            self.on_link_down(port);
        }
    }

    /// Takes in a frame of the controllers.
    #[cold]
    pub(super) fn on_control(
        &mut self,
        now: Now,
        clock: Timestamp,
        port: Port,
        frame: &Frame<'_>,
    ) -> bool {
        let times = (now.mono, clock);
        let is_accepted = match self.control.on_frame(self.link.registers_mut(), times, port, frame)
        {
            Handled::No => false,
            Handled::Yes => true,
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

    /// Whether the frame is of a life that has failed.
    #[inline]
    pub(super) fn is_failed(&self, frame: &Frame<'_>) -> bool {
        let (process, incarnation) = (frame.header.src(), frame.header.incarnation());
        self.control.has_failed(process, incarnation).is_some()
    }

    /// Discards and recalls for every failure that is news, and completes what is done. Nothing
    /// while a burst is under way: its frames are for receivers as they were when it began.
    #[inline]
    pub(super) fn handle_failures(&mut self, now: Now) {
        // Nobody but controllers tells of failures.
        if self.config.controllers.is_some() && self.reliable.sender.unfinished_burst().is_none() {
            self.process_failures(now);
        }
    }

    fn process_failures(&mut self, now: Now) {
        let recorded = self.control.take_acked_undeliverable();
        if recorded > 0 {
            self.reliable.sender.on_undeliverable_ack(recorded);
        }
        while let Some(failure) = self.control.poll_failure() {
            let last = failure.first.0.saturating_add(failure.count).min(self.config.processes_max);
            for process in (failure.first.0..last).map(ProcessId) {
                if process != self.config.process {
                    self.on_failed(now, process, failure.incarnation, failure.at);
                }
            }
        }
        // A burst of best effort ends first, too: then all of it can be accounted for.
        if let Some(at) = self.control.excluded()
            && self.exclusion == Exclusion::Member
            && self.best_effort.sender.unfinished_burst().is_none()
        {
            self.exclusion = Exclusion::Excluded(at, self.commit_barrier());
            self.best_effort.sender.abandon(at);
            self.reliable.sender.abandon(at);
        }
        if self.has_failure_step() {
            self.complete();
        }
        if let Exclusion::Notified(commit) = self.exclusion {
            self.apply_recovery(commit);
        }
    }

    fn on_failed(&mut self, now: Now, process: ProcessId, incarnation: Incarnation, at: Timestamp) {
        self.stats.processes_failed += 1;
        self.best_effort.sender.on_gone(process, incarnation, &mut self.stats);
        self.best_effort.receiver.on_gone(process, incarnation);
        self.reliable.sender.on_failed(&self.config, now.mono, process, incarnation);
        self.reliable.receiver.on_failed(process, incarnation, at);
        self.failed.push_back(ProcessFailed { process, incarnation, at });
        self.callbacks_open += 1;
    }

    /// Whether [`Endpoint::complete`] may have something to do.
    #[inline]
    pub(super) fn has_failure_step(&self) -> bool {
        self.config.controllers.is_some()
            && (self.reliable.sender.has_undeliverable()
                || (self.control.is_completion_pending() && self.has_handled_all()))
    }

    /// Whether the application is back from its callbacks, and all recalls are acknowledged.
    fn has_handled_all(&self) -> bool {
        let is_reported = self.callbacks_open == 0 && self.failed.is_empty();
        is_reported && self.reliable.sender.has_acked_recalls()
    }

    #[cold]
    fn complete(&mut self) {
        let (sender, control) = (&mut self.reliable.sender, &mut self.control);
        sender.report_undeliverable(|recall| control.on_undeliverable(recall));
        if !sender.has_undeliverable() && control.is_completion_pending() && self.has_handled_all()
        {
            self.control.on_failures_handled();
        }
    }

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
            let last = failure.first.0.saturating_add(failure.count).min(self.config.processes_max);
            for process in (failure.first.0..last).map(ProcessId) {
                receiver.on_failed(process, failure.incarnation, failure.at);
            }
        }
        let complete = commit.map_or(recovered.complete, |commit| commit.max(recovered.complete));
        self.exclusion = Exclusion::Recovered(complete);
    }

    /// What there is to tell of failures.
    pub(super) fn poll_failure_event(&mut self) -> Option<Event> {
        if let Exclusion::Excluded(at, commit) = self.exclusion {
            self.exclusion = Exclusion::Notified(commit);
            self.failed.clear();
            return Some(Event::Excluded(at));
        }
        self.failed.pop_front().map(Event::ProcessFailed)
    }

    /// What there is to tell when nothing is left to deliver.
    #[inline]
    pub(super) fn poll_recovered_event(&mut self) -> Option<Event> {
        let Exclusion::Recovered(complete) = self.exclusion else { return None };
        self.exclusion = Exclusion::Finished(complete);
        Some(Event::Recovered(complete))
    }

    /// Whether [`Endpoint::poll_control`] may have a frame.
    #[inline]
    pub(super) fn has_control_frame(&self, now: Mono) -> bool {
        self.control.wants_transmit(self.link.registers())
            || self.control.deadline().is_some_and(|due| due <= now)
    }

    /// The next frame for the controllers, or about this process's links.
    pub(super) fn poll_control(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        if self.control.take_beacon(now.mono) {
            self.stats.beacons_sent += 1;
            return Some(self.poll_link_frame(slot, Opcode::Beacon));
        }
        let payload = &mut slot[HEADER_LEN..self.config.frame_len_max];
        let frame = self.control.write_next(now.mono, self.link.registers_mut(), payload)?;
        let promises = (self.current_promises(), self.commit_barrier());
        let header = self.control.header(self.link.registers_mut(), &frame, promises);
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

    /// A frame that speaks of this process's uplink.
    pub(super) fn poll_link_frame(&mut self, slot: &mut [u8], opcode: Opcode) -> Transmit {
        let port = Port(0);
        let peer = self.control.peer(self.link.registers_mut(), port);
        let previous = if self.link.registers().is_held(port) { Flags::PREVIOUS_HOLDS } else { 0 };
        let header =
            Header::hop_only(opcode, self.config.instance(), peer, self.current_promises());
        let header = header.flagged(previous);
        let frame_len = seal_with_hops(slot, header, 0, 1);
        self.stats.frames_sent += 1;
        self.link.on_sent();
        Transmit { port, bytes: frame_len }
    }

    /// A reliable frame for a receiver that does not answer goes by a controller. Answers `None`
    /// when it goes directly.
    #[cold]
    pub(super) fn poll_relay(
        &mut self,
        now: Now,
        slot: &mut [u8],
        draft: &Draft,
    ) -> Option<Transmit> {
        if !self.control.is_relayed(now.mono, draft.to) {
            return None;
        }
        let header = draft.header(&self.config, self.current_promises());
        let frame_len = seal(slot, header, draft.payload_len);
        if !self.control.encapsulate(&slot[..frame_len]) {
            return None;
        }
        self.stats.frames_relayed += 1;
        self.poll_control(now, slot)
    }

    /// Takes note of receivers that do not answer.
    #[inline]
    pub(super) fn relay_unreachable(&mut self, now: Now) {
        while let Some(process) = self.reliable.sender.unreachable.pop() {
            self.control.on_unreachable(now.mono, process);
        }
    }

    /// Nothing more is heard on `port`, as the world knows.
    pub(super) fn on_link_down(&mut self, port: Port) {
        self.control.on_link_down(self.link.registers_mut(), port);
        let new_barrier = self.link.refresh();
        self.on_barrier(new_barrier);
        if self.config.links == Links::Mesh {
            let process = ProcessId(u32::from(port.0));
            let any_incarnation = Incarnation(u32::MAX);
            self.best_effort.sender.on_gone(process, any_incarnation, &mut self.stats);
            self.best_effort.receiver.on_gone(process, any_incarnation);
        }
    }
}
