//! The application of a simulated fabric: generates the load and feeds the checkers.

use std::borrow::BorrowMut;
use std::collections::VecDeque;
use std::sync::Arc;

use hdrhistogram::Histogram;
use onepipe_base::{HostId, Incarnation, Port, ProcessId};
use onepipe_endpoint::{Delivery, Endpoint, Event, ReceiveMode, Service};
use onepipe_node::{Host, HostEvent};
use onepipe_sim_check::{
    BufferLevels, Checker, Delivered, Failed, Links, Outcome, Snapshot, Tag, digest,
};
use onepipe_sim_engine::{Instant, MICROSECOND, NANOSECOND, Random, Section};
use onepipe_sim_network::{
    Application, LinkId, NodeContext, NodeId, OutgoingMessage, SendPattern, WorkloadGenerator,
};
use onepipe_switch::{Form, Switch, SwitchEvent};
use onepipe_topology::{Node as Vertex, Topology};

use crate::control_plane::ControlPlane;
use crate::payload;
use crate::{HostedEvent, Node, Plan, Process, SimSwitch};

mod alarm;
mod divide;
mod failure;
mod load;

use alarm::Alarm;
use divide::DeliveryObserved;

/// Upper bound of the latency histogram: ten seconds.
const LATENCY_NS_MAX: u64 = 10_000_000_000;
/// Delay before a refused submission is tried again.
const RETRY_PS: u64 = 20 * MICROSECOND;

/// State of one process id over all incarnations.
#[derive(Debug)]
pub(crate) struct ProcessState {
    /// Number of incarnations started. The checker and payloads count incarnations from 0, so the
    /// current one has this number less 1 there.
    pub incarnations: u32,
    /// Scatterings submitted by this incarnation, by service: best effort, reliable.
    submitted: [u64; 2],
    generator: Option<WorkloadGenerator>,
    /// Messages of this incarnation that were neither delivered nor failed.
    pub outstanding: u32,
    /// Whether the process does not release what it receives.
    pub is_slow: bool,
    /// Delivered messages that were not released.
    pub unreleased: Vec<Delivery>,
    /// Whether the process waits for an alarm to submit again.
    is_retrying: bool,
    /// Random stream that draws the service of each scattering.
    services: Random,
    /// Membership of this incarnation.
    membership: Membership,
}

/// Membership of an incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Membership {
    /// It takes part.
    Member,
    /// It was notified of its own failure, and completes what it has received.
    Excluded,
    /// It has left.
    Left,
}

/// Builds the nodes of a fabric, generates its load, and checks it.
#[derive(Debug)]
pub struct FabricApp<C = ControlPlane> {
    pub(crate) plan: Arc<Plan>,
    pub(crate) topology: Arc<Topology>,
    pub(crate) checker: Checker,
    pub(crate) links: Links,
    pub(crate) send_levels: BufferLevels,
    pub(crate) receive_levels: BufferLevels,
    pub(crate) states: Section<ProcessState>,
    pub(crate) is_loading: bool,
    pub(crate) latency: Histogram<u64>,
    pub(crate) control_plane: Option<C>,
    /// Events of the application as text, if text is wanted.
    pub(crate) log: VecDeque<(Instant, String)>,
    /// Number of processes that are not controllers; the ids of the controllers follow.
    pub(crate) members: u32,
    /// Processes with events since the last inspection.
    active_ports: Vec<Port>,
    /// The port of each host that is inspected next even if it has no events.
    next_ports: Section<u16>,
    /// Reused buffers for the scattering that is being submitted: its messages, their payloads, and
    /// for the checker each receiver with the digest of its payload.
    scattering: Vec<OutgoingMessage>,
    payloads: Vec<Vec<u8>>,
    expected: Vec<(ProcessId, u64)>,
    /// Deliveries to check at the nodes of their senders, if this is the application of one node.
    observed: Vec<(NodeId, DeliveryObserved)>,
    /// Latencies in ns that are recorded when the parts are united.
    latencies_ns: Vec<u64>,
    is_part: bool,
}

impl FabricApp {
    pub(crate) fn new(plan: Plan, topology: Topology) -> Self {
        let processes = topology.processes();
        let members = plan.controllers(processes).map_or(processes, |all| all.first.0);
        let state = |id| ProcessState {
            incarnations: 0,
            submitted: [0; 2],
            generator: plan.load.map(|load| {
                WorkloadGenerator::new(load.workload, ProcessId(id), members, plan.seed)
            }),
            outstanding: 0,
            is_slow: false,
            unreleased: Vec::new(),
            is_retrying: false,
            services: Random::named(plan.seed, "service", u64::from(id)),
            membership: Membership::Member,
        };
        let links = topology.links().count();
        Self {
            checker: Checker::new(members, plan.checks_submission_order)
                .merged(plan.endpoint.receive_mode == ReceiveMode::Merged),
            links: Links::new(links, plan.network.sync_origin),
            // Two buffers, one for each service.
            send_levels: BufferLevels::new(
                "send buffer",
                2 * plan.endpoint.send_buffer_bytes_max as u64,
            ),
            receive_levels: BufferLevels::new(
                "receive buffer",
                2 * plan.endpoint.receive_buffer_bytes_max as u64,
            ),
            control_plane: plan
                .control_plane
                .clone()
                .map(|control_plane| ControlPlane::new(control_plane, plan.seed)),
            members,
            states: (0..processes).map(state).collect::<Vec<_>>().into(),
            is_loading: true,
            latency: Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).expect("sound bounds"),
            log: VecDeque::new(),
            active_ports: Vec::new(),
            next_ports: vec![0; topology.hosts() as usize].into(),
            scattering: Vec::new(),
            payloads: Vec::new(),
            expected: Vec::new(),
            observed: Vec::new(),
            latencies_ns: Vec::new(),
            is_part: false,
            plan: Arc::new(plan),
            topology: Arc::new(topology),
        }
    }
}

impl<C: BorrowMut<ControlPlane>> FabricApp<C> {
    /// Builds the next incarnation of a process.
    pub(crate) fn build_process(&mut self, id: ProcessId) -> Process {
        let state = &mut self.states[id.index()];
        state.incarnations += 1;
        (state.outstanding, state.submitted) = (0, [0; 2]);
        state.is_retrying = false;
        state.unreleased.clear();
        state.membership = Membership::Member;
        if state.incarnations > 1 {
            self.checker.restarted(id);
        }
        let config = onepipe_endpoint::Config {
            process: id,
            incarnation: Incarnation(state.incarnations),
            processes_max: self.topology.processes() + self.plan.absent,
            controllers: self.plan.controllers(self.topology.processes()),
            ..self.plan.endpoint.clone()
        };
        let endpoint = Endpoint::new(config).expect("the plan's endpoint is in range");
        Process::new(endpoint, self.plan.bug)
    }

    fn port(&self, id: usize) -> Port {
        Port((id % usize::from(self.topology.processes_per_host())) as u16)
    }

    fn id(&self, node: NodeId, port: Port) -> ProcessId {
        let host = HostId(node.0);
        ProcessId(self.topology.processes_of(host).start + u32::from(port.0))
    }

    fn on_delivered(&mut self, at: &NodeContext<'_>, process: &mut Process, delivery: Delivery) {
        let to = process.endpoint.config().process;
        let bytes = process.endpoint.payload(&delivery);
        let tag = payload::tag(bytes);
        let Delivery { service, timestamp: stamp, from, index, .. } = delivery;
        let delivered = Delivered { service, stamp, from, index, tag, digest: digest(bytes) };
        self.checker.at_ns(at.instant.as_ns());
        self.log_line(at.instant, || {
            let tag = tag.map_or((0, 0), |tag| (tag.incarnation, tag.scattering));
            format!(
                "process {} delivers {service:?} {} {tag:?} index={index} ts={}",
                to.0,
                from.0,
                stamp.to_wire().bits()
            )
        });
        let received = self.checker.received(to, delivered);
        self.observe(DeliveryObserved { received, from, tag, at_ps: at.instant.as_ps() });
        let state = &mut self.states[to.index()];
        if state.is_slow {
            state.unreleased.push(delivery);
        } else {
            process.release(delivery);
        }
    }

    fn on_failed(
        &mut self,
        at: &mut NodeContext<'_>,
        from: ProcessId,
        failed: onepipe_endpoint::SendFailed,
    ) {
        let incarnation = self.checker.incarnation(from);
        let outcome = match failed.outcome {
            onepipe_endpoint::Outcome::Lost => Outcome::Lost,
            onepipe_endpoint::Outcome::Unknown => Outcome::Unknown,
        };
        self.checker.at_ns(at.instant.as_ns());
        self.log_line(at.instant, || format!("process {} is notified of {failed:?}", from.0));
        let tag = Tag { incarnation, scattering: failed.scattering.0 };
        let has_controllers = self.plan.control_plane.is_some();
        if self.plan.absent > 0 && is_given_up(&failed, has_controllers) {
            self.checker.given_up(from, tag);
        }
        self.checker.failed(
            from,
            Failed {
                service: failed.service,
                tag,
                index: failed.index,
                to: failed.to,
                stamp: failed.timestamp,
                outcome,
            },
        );
        let state = &mut self.states[from.index()];
        state.outstanding = state.outstanding.saturating_sub(1);
        // A failed receiver refuses immediately: without a pause the closed loop would submit
        // forever at one instant.
        self.pause_loop(at, from.index());
    }

    /// Checks a drained process and submits more if the load allows it.
    fn inspect(&mut self, at: &mut NodeContext<'_>, machine: &mut Node, port: Port) {
        // Mutable access, further down, is taken only if there is something to submit.
        let Some(process) = machine.process(port) else { return };
        if process.has_crashed() {
            return self.remove_process(at, machine, port);
        }
        let endpoint = &process.endpoint;
        let has_left = endpoint.has_left();
        let is_unacknowledged = endpoint.is_leave_unacknowledged();
        let id = endpoint.config().process;
        let at_ns = at.instant.as_ns();
        self.checker.at_ns(at_ns);
        let may_read = at.is_current && !process.is_stopped();
        let snapshot = Snapshot {
            now: may_read.then_some(at.now.sync),
            barrier: endpoint.barrier(),
            commit_barrier: endpoint.commit_barrier(),
            promises: endpoint.promises(),
            is_sending: endpoint.wants_transmit(),
        };
        self.checker.drained(id, snapshot);
        self.send_levels.observe(id, endpoint.send_buffer_bytes() as u64, at_ns);
        self.receive_levels.observe(id, endpoint.receive_buffer_bytes(), at_ns);
        let wants_more = self.is_loading
            && !self.states[id.index()].is_retrying
            && self.plan.load.is_some_and(|load| match load.pattern {
                SendPattern::ClosedLoop { messages_max } => {
                    self.states[id.index()].outstanding < messages_max
                }
                SendPattern::OpenLoop { .. } => false,
            })
            && at_ns >= self.plan.load_starts_ns
            && self.states[id.index()].membership == Membership::Member;
        if wants_more && let Some(process) = machine.process_mut(port) {
            self.refill(at, process);
        }
        if has_left {
            self.on_left(id, is_unacknowledged);
        }
    }
}

impl<C: BorrowMut<ControlPlane>> FabricApp<C> {
    /// Notes, once, that a process has left.
    pub(crate) fn on_left(&mut self, id: ProcessId, is_unacknowledged: bool) {
        let membership = &mut self.states[id.index()].membership;
        if *membership != Membership::Member {
            return;
        }
        *membership = Membership::Left;
        match is_unacknowledged {
            // What it had sent last may be discarded, as that of a crashed process.
            true => self.checker.crashed(id),
            false => self.checker.left(id),
        }
    }

    /// Stops a process that has reached its crash point.
    fn remove_process(&mut self, at: &NodeContext<'_>, machine: &mut Node, port: Port) {
        if let Node::Host(host) = machine {
            host.stop(port);
            self.checker.at_ns(at.instant.as_ns());
            self.checker.crashed(self.id(at.node, port));
        }
    }

    /// Resets the link checks of a switch that has restarted and forgotten its promises. After a
    /// restart in place, frames of the previous incarnation may still leave.
    fn on_switch_restart(&mut self, node: NodeId, is_soft: bool) {
        let vertex = self.topology.nodes().nth(node.index()).expect("a node of the topology");
        let outgoing = (0u32..).zip(self.topology.links());
        for (link, _) in outgoing.filter(|(_, link)| link.from.node == vertex) {
            match is_soft {
                true => self.links.soft_restarted(link),
                false => self.links.restarted(link),
            }
        }
    }
}

impl<C: BorrowMut<ControlPlane>> Application<Node> for FabricApp<C> {
    fn build(&mut self, node: NodeId, incarnation: u32) -> Node {
        let vertex = self.topology.nodes().nth(node.index()).expect("a node of the topology");
        let ports = self.topology.ports(vertex);
        let config = onepipe_switch::Config {
            switch: onepipe_base::SwitchId(node.0),
            lower_ports: ports.lower,
            upper_ports: ports.upper,
            route: self.topology.route(vertex),
            // A switch that is declared failed starts further incarnations by itself between two
            // crashes.
            incarnation: Incarnation(incarnation << 8),
            controllers: self.plan.controllers(self.topology.processes()),
            ..self.plan.switch.clone()
        };
        let is_edge = matches!(vertex, Vertex::Host(_)) && config.form == Form::OffChip;
        let form = if is_edge { Form::Edge } else { config.form };
        let switch = Switch::new(onepipe_switch::Config { form, ..config });
        let switch = switch.expect("the plan's switch is in range");
        if incarnation > 0 {
            self.on_switch_restart(node, false);
        }
        let Vertex::Host(host) = vertex else {
            return Node::Switch(SimSwitch::new(switch, self.plan.bug));
        };
        let ids = self.topology.processes_of(host);
        if self.topology.processes_per_host() == 1 && ids.start >= self.members {
            let controller = self.build_controller(ProcessId(ids.start));
            return Node::Controller(Box::new(controller), self.topology.network_card());
        }
        let hosted = ids.map(|id| self.build_hosted(ProcessId(id))).collect();
        Node::Host(Host::new(SimSwitch::new(switch, None), hosted))
    }

    fn on_start(&mut self, mut at: NodeContext<'_>, machine: &mut Node) {
        if let Node::Switch(_) = machine {
            return;
        }
        self.start_controllers(&mut at);
        let Some(load) = self.plan.load else { return };
        let earliest_ps =
            (self.plan.load_starts_ns * NANOSECOND).saturating_sub(at.instant.as_ps());
        for port in 0..self.topology.processes_per_host() {
            let id = self.id(at.node, Port(port));
            let first_ps = match load.pattern {
                SendPattern::ClosedLoop { .. } => 0,
                SendPattern::OpenLoop { interval_ns } => {
                    let mut random = Random::named(self.plan.seed, "pace", id.0.into());
                    random.below(interval_ns.max(1) * NANOSECOND)
                }
            };
            at.alarm(earliest_ps + first_ps, u32::from(port));
        }
    }

    fn on_event(
        &mut self,
        mut at: NodeContext<'_>,
        machine: &mut Node,
        event: <Node as onepipe_base::Machine>::Event,
    ) {
        let (port, event) = match event {
            HostEvent::Process(port, event) => (port, event),
            HostEvent::Switch(event) => {
                self.log_line(at.instant, || format!("switch {} reports {event:?}", at.node.0));
                if event == SwitchEvent::Restarted {
                    self.on_switch_restart(at.node, true);
                }
                return;
            }
        };
        let event = match event {
            HostedEvent::Process(event) => event,
            HostedEvent::Controller(event) => {
                return self.on_controller_event(&at, machine, port, event);
            }
        };
        if self.active_ports.last() != Some(&port) {
            self.active_ports.push(port);
        }
        let id = self.id(at.node, port);
        match event {
            Event::Delivered(delivery) => {
                if let Some(process) = machine.process_mut(port) {
                    self.on_delivered(&at, process, delivery);
                }
            }
            Event::SendFailed(failed) => self.on_failed(&mut at, id, failed),
            Event::LinkLost(_) => {}
            event => self.on_failure_event(&mut at, machine, port, event),
        }
    }

    fn on_drained(&mut self, mut at: NodeContext<'_>, machine: &mut Node) {
        while let Some(port) = self.active_ports.pop() {
            self.inspect(&mut at, machine, port);
        }
        // One more in round-robin order, so that each process is inspected now and then.
        let next_port = &mut self.next_ports[at.node.index()];
        let port = Port(*next_port);
        *next_port =
            if *next_port + 1 < self.topology.processes_per_host() { *next_port + 1 } else { 0 };
        self.inspect(&mut at, machine, port);
        self.serve_controllers(&mut at, machine);
    }

    fn on_alarm(&mut self, mut at: NodeContext<'_>, machine: &mut Node, token: u32) {
        let port = Port(token as u16);
        match Alarm::of(token) {
            Alarm::Load => {}
            other => return self.on_process_or_controller_alarm(&mut at, machine, port, other),
        }
        let Some(process) = machine.process_mut(port) else { return };
        let id = process.endpoint.config().process.index();
        self.states[id].is_retrying = false;
        let Some(load) = self.plan.load else { return };
        if !self.is_loading {
            return;
        }
        match load.pattern {
            SendPattern::ClosedLoop { .. } => self.refill(&mut at, process),
            SendPattern::OpenLoop { interval_ns } => {
                self.submit_next(&mut at, process);
                at.alarm(interval_ns * NANOSECOND, token);
            }
        }
    }

    fn on_crash(&mut self, instant: Instant, node: NodeId) {
        self.checker.at_ns(instant.as_ns());
        if node.0 < self.topology.hosts() {
            let members = self.members;
            let ids = self.topology.processes_of(HostId(node.0)).filter(|id| *id < members);
            ids.for_each(|id| self.checker.crashed(ProcessId(id)));
        }
    }

    #[inline]
    fn prefetch(&self, node: NodeId, machine: &Node, frame: &[u8]) -> u64 {
        let Some(header) = onepipe_wire::header_unchecked(frame) else { return 0 };
        let first = self.topology.processes_of(HostId(node.0)).start;
        let port = Port(header.dst().0.wrapping_sub(first) as u16);
        machine.process(port).map_or(0, |process| process.endpoint.prefetch(frame))
    }

    #[inline]
    fn on_departure(&mut self, instant: Instant, link: LinkId, frame: &[u8]) {
        self.links.departed(link.0, frame, instant.as_ns());
        // The links of hosts come first, and every frame leaves its host before any other node.
        if self.control_plane.is_some() && link.0 < self.topology.hosts() {
            self.record_timestamps(instant, link, frame);
        }
    }
}

/// Returns whether a sender reports a reliable message because it has given up or cancelled its
/// scattering. Without controllers that includes those to a previous incarnation (failure R57).
fn is_given_up(failed: &onepipe_endpoint::SendFailed, has_controllers: bool) -> bool {
    use onepipe_endpoint::FailureReason as Reason;
    let is_ended = match failed.reason {
        Reason::NeverJoined | Reason::NoController | Reason::NoCommitBarrier => true,
        Reason::Cancelled => true,
        Reason::ReceiverFailed => !has_controllers,
        _ => false,
    };
    is_ended && failed.service == Service::Reliable
}
