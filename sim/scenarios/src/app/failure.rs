//! Failure notifications at processes, and the controllers that decide failures.

use std::borrow::BorrowMut;

use onepipe_base::{HostId, Incarnation, Port, ProcessId};
use onepipe_controller::Controller;
use onepipe_endpoint::{Event, ProcessFailed, ProcessLeft, Service};
use onepipe_sim_engine::{Instant, NANOSECOND};
use onepipe_sim_network::{LinkId, NodeContext, SendPattern};
use onepipe_wire::{Fragment, HEADER_LEN, Header, Messages};
use zerocopy::FromBytes;

use super::{Alarm, FabricApp, Membership};
use crate::control_plane::ControlPlane;
use crate::payload;
use crate::{HostedMachine, Node};

/// Delay after which an excluded process rejoins if it could not recover its messages' outcomes.
const REJOIN_PS: u64 = 300_000 * NANOSECOND;

impl<C: BorrowMut<ControlPlane>> FabricApp<C> {
    /// Builds the machine of an id: the next incarnation of a process or a controller.
    pub(crate) fn build_hosted(&mut self, id: ProcessId) -> HostedMachine {
        if id.0 < self.members {
            return HostedMachine::Process(self.build_process(id));
        }
        HostedMachine::Controller(Box::new(self.build_controller(id)))
    }

    /// Builds the next incarnation of a controller.
    pub(super) fn build_controller(&mut self, id: ProcessId) -> Controller {
        let index = (id.0 - self.members) as usize;
        let controllers = self.plan.controllers(self.topology.processes());
        let plan = self.plan.control_plane.as_ref().expect("ids from `members` on are controllers");
        let nodes = self.topology.hosts() + self.topology.switches();
        let control_plane = control_plane_of(&mut self.control_plane)
            .expect("a plan with controllers has a control plane");
        let config = onepipe_controller::Config {
            process: id,
            incarnation: Incarnation(control_plane.next_incarnation(index)),
            controllers: controllers.expect("the plan has controllers"),
            frame_len_max: self.plan.network.frame_len_max,
            processes_max: self.topology.processes(),
            switches_max: nodes,
            heartbeat_interval_ns: self.plan.switch.heartbeat_interval_ns,
            ..plan.controller.clone()
        };
        Controller::new(config).expect("the plan's controller is in range")
    }

    /// Starts the campaigns of the controllers at a node that has started.
    pub(super) fn start_controllers(&mut self, at: &mut NodeContext<'_>) {
        for (index, port) in self.controllers_at(HostId(at.node.0)) {
            self.start_campaign(at, index, port);
        }
    }

    /// Starts the campaign of a controller.
    pub(crate) fn start_campaign(&mut self, at: &mut NodeContext<'_>, index: usize, port: Port) {
        let Some(control_plane) = control_plane_of(&mut self.control_plane) else { return };
        // The replicas campaign one after the other, at different eighths of the interval.
        let first_ns = control_plane.renew_ns() * (index as u64 + 1) / 8;
        at.alarm(
            first_ns * NANOSECOND,
            Alarm::Campaign(control_plane.incarnation(index)).token(port),
        );
    }

    /// Returns the controllers of a host: index among the replicas, and port.
    fn controllers_at(&self, host: HostId) -> impl Iterator<Item = (usize, Port)> + use<C> {
        let (members, ids) = (self.members, self.topology.processes_of(host));
        let first = ids.start;
        let ids = ids.filter(move |id| *id >= members);
        ids.map(move |id| ((id - members) as usize, Port((id - first) as u16)))
    }

    /// Passes the records of the controllers at a node to their store.
    pub(super) fn serve_controllers(&mut self, at: &mut NodeContext<'_>, machine: &mut Node) {
        if self.control_plane.is_none()
            || self.topology.processes_of(HostId(at.node.0)).end <= self.members
        {
            return;
        }
        for (index, port) in self.controllers_at(HostId(at.node.0)) {
            let Some(control_plane) = control_plane_of(&mut self.control_plane) else { return };
            let Some(controller) = machine.controller_mut(port) else { continue };
            for delay_ns in control_plane.take_records(index, controller) {
                let alarm = Alarm::StoreWrite(control_plane.incarnation(index));
                at.alarm(delay_ns * NANOSECOND, alarm.token(port));
            }
            if control_plane.is_crashing(index) {
                crash_controller(at, machine, port);
            }
        }
    }

    /// Handles an event of a controller.
    pub(super) fn on_controller_event(
        &mut self,
        at: &NodeContext<'_>,
        machine: &mut Node,
        port: Port,
        event: onepipe_controller::Event,
    ) {
        use onepipe_controller::Event;
        let id = self.id(at.node, port);
        let index = (id.0 - self.members) as usize;
        let at_ns = at.instant.as_ns();
        self.log_line(at.instant, || format!("controller {} reports {event:?}", id.0));
        let Some(control_plane) = control_plane_of(&mut self.control_plane) else { return };
        self.checker.at_ns(at_ns);
        match event {
            Event::Active(epoch) => control_plane.on_active(at_ns, id, epoch),
            Event::StoreOutdated { epoch, .. } => {
                control_plane.on_outdated(at_ns, index, id, epoch);
            }
            Event::Isolated => {
                if let Some(controller) = machine.controller_mut(port) {
                    control_plane.resign(at_ns, at.now, index, controller);
                }
            }
            Event::Failed { failed, .. } => {
                if let onepipe_base::Address::Process(process) = failed.instance.address {
                    // The checker counts incarnations from 0.
                    let incarnation = failed.instance.incarnation.0.saturating_sub(1);
                    let cause = failed.cause;
                    self.checker.decided(process, incarnation, failed.is_exact, cause);
                }
            }
            _ => {}
        }
    }

    /// Handles a failure notification at a process, of another process or of itself.
    pub(super) fn on_failure_event(
        &mut self,
        at: &mut NodeContext<'_>,
        machine: &mut Node,
        port: Port,
        event: Event,
    ) {
        let id = self.id(at.node, port);
        self.checker.at_ns(at.instant.as_ns());
        let own_incarnation = self.states[id.index()].incarnations;
        self.log_line(at.instant, || format!("process {} is notified of {event:?}", id.0));
        match event {
            Event::ProcessFailed(ProcessFailed { process, incarnation, at: failed_at, .. }) => {
                // The checker counts incarnations from 0.
                let victim = (process, incarnation.0.saturating_sub(1));
                self.checker.failure_notified(id, victim, failed_at);
                self.states[id.index()].outstanding = 0;
                let wait_ps = self.plan.callback_ns * NANOSECOND;
                if wait_ps > 0 {
                    at.alarm(wait_ps, Alarm::Callback(own_incarnation).token(port));
                } else if let Some(process) = machine.process_mut(port) {
                    process.endpoint.on_failure_handled();
                }
            }
            Event::ProcessLeft(ProcessLeft { process, incarnation, at: left_at }) => {
                let leaver = (process, incarnation.0.saturating_sub(1));
                self.checker.failure_notified(id, leaver, left_at);
                self.states[id.index()].outstanding = 0;
            }
            Event::Excluded(failed_at) => {
                self.checker.excluded(id, failed_at);
                self.states[id.index()].membership = Membership::Excluded;
                if let Some(process) = machine.process_mut(port) {
                    process.endpoint.recover(at.now);
                }
                at.alarm(REJOIN_PS, Alarm::Rejoin(own_incarnation).token(port));
            }
            Event::Recovered(_) => self.rejoin(at, machine, port),
            _ => {}
        }
    }

    /// Restarts a failed process as a new incarnation.
    fn rejoin(&mut self, at: &mut NodeContext<'_>, machine: &mut Node, port: Port) {
        let id = self.id(at.node, port);
        if let Node::Host(host) = machine {
            let hosted = self.build_hosted(id);
            host.start(port, hosted);
            // An open loop continues by itself.
            if self
                .plan
                .load
                .is_some_and(|load| matches!(load.pattern, SendPattern::ClosedLoop { .. }))
            {
                at.alarm(0, Alarm::Load.token(port));
            }
        }
    }

    /// Handles an alarm with a purpose other than the load.
    pub(super) fn on_process_or_controller_alarm(
        &mut self,
        at: &mut NodeContext<'_>,
        machine: &mut Node,
        port: Port,
        alarm: Alarm,
    ) {
        let id = self.id(at.node, port);
        let at_ns = at.instant.as_ns();
        if id.0 < self.members {
            let state = &self.states[id.index()];
            match alarm {
                Alarm::Callback(incarnation) if incarnation == state.incarnations => {
                    if let Some(process) = machine.process_mut(port) {
                        process.endpoint.on_failure_handled();
                    }
                }
                Alarm::Rejoin(incarnation)
                    if incarnation == state.incarnations
                        && state.membership == Membership::Excluded
                        && machine.process(port).is_some() =>
                {
                    self.rejoin(at, machine, port);
                }
                _ => {}
            }
            return;
        }
        let index = (id.0 - self.members) as usize;
        let Some(control_plane) = control_plane_of(&mut self.control_plane) else { return };
        let Some(controller) = machine.controller_mut(port) else { return };
        let incarnation = control_plane.incarnation(index);
        match alarm {
            Alarm::Campaign(of) if of == incarnation => {
                control_plane.campaign(at_ns, at.now, index, controller);
                at.alarm(control_plane.renew_ns() * NANOSECOND, alarm.token(port));
            }
            Alarm::StoreWrite(of) if of == incarnation => {
                if let Some(delay_ns) = control_plane.write(at_ns, index) {
                    at.alarm(delay_ns * NANOSECOND, Alarm::StoreReply(incarnation).token(port));
                }
                if control_plane.is_crashing(index) {
                    crash_controller(at, machine, port);
                }
            }
            Alarm::StoreReply(of) if of == incarnation => {
                control_plane.deliver_reply(at_ns, at.now, index, controller)
            }
            _ => {}
        }
    }

    /// Records the timestamps of reliable scatterings in a frame that leaves a host.
    pub(super) fn record_timestamps(&mut self, instant: Instant, link: LinkId, frame: &[u8]) {
        let Ok((header, _)) = Header::ref_from_prefix(frame) else { return };
        let Ok(opcode) = header.opcode() else { return };
        if !opcode.has_messages() || opcode.service() != Some(Service::Reliable) {
            return;
        }
        let near = self.links.promise(link.0).unwrap_or(self.plan.network.sync_origin);
        let (from, first) = (header.src(), header.message_ts(near));
        let Some(bytes) = frame.get(HEADER_LEN..HEADER_LEN + header.length()) else {
            return;
        };
        self.checker.at_ns(instant.as_ns());
        if let Some(messages) = Messages::of_frame(header, bytes) {
            for message in messages.flatten() {
                let stamp = first.wrapping_add_ns(message.delta_ns.into());
                if let Some(tag) = payload::tag(message.payload) {
                    self.checker.stamped(from, Service::Reliable, tag, stamp);
                }
            }
        } else if let Ok(fragment) = Fragment::parse(bytes)
            && fragment.header.offset == 0
            && let Some(tag) = payload::tag(fragment.piece)
        {
            self.checker.stamped(from, Service::Reliable, tag, first);
        }
    }
}

/// Returns the control plane, if there is one.
fn control_plane_of<C: BorrowMut<ControlPlane>>(
    control_plane: &mut Option<C>,
) -> Option<&mut ControlPlane> {
    control_plane.as_mut().map(BorrowMut::borrow_mut)
}

/// Crashes a controller.
fn crash_controller(at: &mut NodeContext<'_>, machine: &mut Node, port: Port) {
    match machine {
        Node::Host(host) => {
            host.stop(port);
        }
        Node::Controller(..) => at.crash(),
        Node::Switch(_) => {}
    }
}
