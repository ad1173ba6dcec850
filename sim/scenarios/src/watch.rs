//! The application of a simulated fabric: generates the load and feeds the checkers.

use std::collections::VecDeque;

use hdrhistogram::Histogram;
use onepipe_base::{HostId, Incarnation, Port, ProcessId};
use onepipe_endpoint::{Delivery, Endpoint, Event, Outcome, ReceiveMode};
use onepipe_node::{Host, HostEvent};
use onepipe_sim_check::{Checker, Delivered, Failed, Fate, Levels, Links, Look, Tag, digest};
use onepipe_sim_engine::{Instant, MICROSECOND, NANOSECOND, Random};
use onepipe_sim_network::{Application, At, Destination, LinkId, NodeId, Pace, Scatterings};
use onepipe_switch::{Form, Switch, SwitchEvent};
use onepipe_topology::{Node as Vertex, Topology};

use crate::court::Courthouse;
use crate::payload;
use crate::{Element, Node, Plan, Process, Said};

mod alarm;
mod failure;
mod load;

use alarm::Alarm;

/// Upper bound of the latency histogram: ten seconds.
const LATENCY_NS_MAX: u64 = 10_000_000_000;
/// Delay before a refused submission is tried again.
const RETRY_PS: u64 = 20 * MICROSECOND;

/// State of one process id over all incarnations.
#[derive(Debug)]
pub(crate) struct Seat {
    pub lives: u32,
    /// Scatterings submitted by this incarnation, by service: best effort, reliable.
    submitted: [u64; 2],
    scatterings: Option<Scatterings>,
    /// Messages of this incarnation that were neither delivered nor failed.
    pub outstanding: u32,
    /// Whether the process does not release what it receives.
    pub is_slow: bool,
    /// Delivered messages that were not released.
    pub held: Vec<Delivery>,
    /// Whether the process waits for an alarm to submit again.
    is_retrying: bool,
    /// Random stream that selects the service of each scattering.
    services: Random,
    /// Whether the process was asked to leave.
    pub is_leaving: bool,
    /// Membership of this incarnation.
    standing: Standing,
}

/// Membership of an incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It takes part.
    Member,
    /// It was notified of its own failure, and completes what it has received.
    Excluded,
    /// It has left.
    Left,
}

/// Builds the nodes of a fabric, generates its load, and checks it.
#[derive(Debug)]
pub struct Watch {
    pub(crate) plan: Plan,
    pub(crate) topology: Topology,
    pub(crate) checker: Checker,
    pub(crate) links: Links,
    pub(crate) send_levels: Levels,
    pub(crate) receive_levels: Levels,
    pub(crate) seats: Vec<Seat>,
    pub(crate) is_loading: bool,
    pub(crate) latency: Histogram<u64>,
    pub(crate) court: Option<Courthouse>,
    /// Events of the application as text, if text is wanted.
    pub(crate) story: VecDeque<(Instant, String)>,
    /// Number of processes; the ids of controllers follow.
    pub(crate) members: u32,
    /// Processes with events since the last inspection.
    touched: Vec<Port>,
    turns: Vec<u16>,
    scattering: Vec<Destination>,
    /// Reused buffers: payloads of the scattering that is being submitted, and their digests.
    payloads: Vec<Vec<u8>>,
    expected: Vec<(ProcessId, u64)>,
}

impl Watch {
    pub(crate) fn new(plan: Plan, topology: Topology) -> Self {
        let processes = topology.processes();
        let members = plan.controllers(processes).map_or(processes, |all| all.first.0);
        let seat = |id| Seat {
            lives: 0,
            submitted: [0; 2],
            scatterings: plan
                .load
                .map(|load| Scatterings::new(load.workload, ProcessId(id), members, plan.seed)),
            outstanding: 0,
            is_slow: false,
            held: Vec::new(),
            is_retrying: false,
            services: Random::named(plan.seed, "service", u64::from(id)),
            is_leaving: false,
            standing: Standing::Member,
        };
        let links = topology.links().count();
        Self {
            checker: Checker::new(members, plan.checks_submission_order)
                .merged(plan.endpoint.receive_mode == ReceiveMode::Merged),
            links: Links::new(links, plan.network.sync_origin),
            // Two buffers, one for each service.
            send_levels: Levels::new("send buffer", 2 * plan.endpoint.send_buffer_bytes_max as u64),
            receive_levels: Levels::new(
                "receive buffer",
                2 * plan.endpoint.receive_buffer_bytes_max as u64,
            ),
            court: plan.court.clone().map(|court| Courthouse::new(court, plan.seed)),
            members,
            seats: (0..processes).map(seat).collect(),
            is_loading: true,
            latency: Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).expect("sound bounds"),
            story: VecDeque::new(),
            touched: Vec::new(),
            turns: vec![0; topology.hosts() as usize],
            scattering: Vec::new(),
            payloads: Vec::new(),
            expected: Vec::new(),
            plan,
            topology,
        }
    }

    /// Creates an endpoint for the next incarnation of a process id.
    pub(crate) fn process(&mut self, id: ProcessId) -> Process {
        let seat = &mut self.seats[id.index()];
        seat.lives += 1;
        (seat.outstanding, seat.submitted) = (0, [0; 2]);
        seat.is_retrying = false;
        seat.held.clear();
        (seat.standing, seat.is_leaving) = (Standing::Member, false);
        if seat.lives > 1 {
            self.checker.restarted(id);
        }
        let config = onepipe_endpoint::Config {
            process: id,
            incarnation: Incarnation(seat.lives),
            processes_max: self.topology.processes(),
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

    fn on_delivered(&mut self, at: &At<'_>, process: &mut Process, delivery: Delivery) {
        let to = process.endpoint.config().process;
        let bytes = process.endpoint.payload(&delivery);
        let tag = payload::tag(bytes);
        let Delivery { service, timestamp: stamp, from, index, .. } = delivery;
        let delivered = Delivered { service, stamp, from, index, tag, digest: digest(bytes) };
        self.checker.at_ns(at.instant.as_ns());
        self.note(at.instant, || {
            let tag = tag.map_or((0, 0), |tag| (tag.life, tag.scattering));
            format!(
                "process {} delivers {service:?} {} {tag:?} index={index} ts={}",
                to.0,
                from.0,
                stamp.to_wire().bits()
            )
        });
        if let Some(submitted_ps) = self.checker.delivered(to, delivered) {
            let latency_ns = (at.instant.as_ps() - submitted_ps) / NANOSECOND;
            self.latency.saturating_record(latency_ns.max(1));
        }
        if let (Some(tag), Some(seat)) = (tag, self.seats.get_mut(from.index()))
            && tag.life + 1 == seat.lives
        {
            seat.outstanding = seat.outstanding.saturating_sub(1);
        }
        let seat = &mut self.seats[to.index()];
        if seat.is_slow {
            seat.held.push(delivery);
        } else {
            process.release(delivery);
        }
    }

    fn on_failed(
        &mut self,
        at: &mut At<'_>,
        from: ProcessId,
        failed: onepipe_endpoint::SendFailed,
    ) {
        let life = self.checker.life(from);
        let fate = match failed.outcome {
            Outcome::Lost => Fate::Lost,
            Outcome::Unknown => Fate::Unknown,
        };
        self.checker.at_ns(at.instant.as_ns());
        self.note(at.instant, || format!("process {} is told {failed:?}", from.0));
        self.checker.failed(
            from,
            Failed {
                service: failed.service,
                tag: Tag { life, scattering: failed.scattering.0 },
                index: failed.index,
                to: failed.to,
                stamp: failed.timestamp,
                fate,
            },
        );
        let seat = &mut self.seats[from.index()];
        seat.outstanding = seat.outstanding.saturating_sub(1);
        // A failed receiver refuses immediately: without a pause the closed loop would submit
        // forever at one instant.
        self.pause_loop(at, from.index());
    }

    /// Checks a drained process and submits more if the load allows it.
    fn look(&mut self, at: &mut At<'_>, machine: &mut Node, port: Port) {
        // Needs only shared access, unless there is something to submit.
        let Some(process) = machine.process(port) else { return };
        if process.is_dead() {
            return self.bury(at, machine, port);
        }
        let endpoint = &process.endpoint;
        let has_left = endpoint.has_left();
        let id = endpoint.config().process;
        let at_ns = at.instant.as_ns();
        self.checker.at_ns(at_ns);
        let look = Look {
            barrier: endpoint.barrier(),
            commit_barrier: endpoint.commit_barrier(),
            promises: endpoint.promises(),
            is_sending: endpoint.wants_transmit(),
        };
        self.checker.drained(id, look);
        self.send_levels.seen(id, endpoint.send_buffer_bytes() as u64, at_ns);
        self.receive_levels.seen(id, endpoint.receive_buffer_bytes(), at_ns);
        let wants_more = self.is_loading
            && !self.seats[id.index()].is_retrying
            && self.plan.load.is_some_and(|load| match load.pace {
                Pace::ClosedLoop { messages_max } => {
                    self.seats[id.index()].outstanding < messages_max
                }
                Pace::Every { .. } => false,
            })
            && at_ns >= self.plan.load_starts_ns
            && self.seats[id.index()].standing == Standing::Member;
        if wants_more && let Some(process) = machine.process_mut(port) {
            self.refill(at, process);
        }
        if has_left && self.seats[id.index()].standing == Standing::Member {
            self.seats[id.index()].standing = Standing::Left;
            self.checker.left(id);
        }
    }
}

impl Watch {
    /// Removes a process that has reached its crash point.
    fn bury(&mut self, at: &At<'_>, machine: &mut Node, port: Port) {
        if let Node::Host(host) = machine {
            host.stop(port);
            self.checker.at_ns(at.instant.as_ns());
            self.checker.crashed(self.id(at.node, port));
        }
    }

    /// Resets the link checks of a switch that has restarted and forgotten its promises. After a
    /// restart in place, frames of the previous incarnation may still leave.
    fn on_reborn(&mut self, node: NodeId, is_in_place: bool) {
        let vertex = self.topology.nodes().nth(node.index()).expect("a node of the topology");
        let outgoing = (0u32..).zip(self.topology.links());
        for (link, _) in outgoing.filter(|(_, link)| link.from.node == vertex) {
            match is_in_place {
                true => self.links.reborn(link),
                false => self.links.restarted(link),
            }
        }
    }
}

impl Application<Node> for Watch {
    fn build(&mut self, node: NodeId, life: u32) -> Node {
        let vertex = self.topology.nodes().nth(node.index()).expect("a node of the topology");
        let ports = self.topology.ports(vertex);
        let config = onepipe_switch::Config {
            switch: onepipe_base::SwitchId(node.0),
            lower_ports: ports.lower,
            upper_ports: ports.upper,
            route: self.topology.route(vertex),
            // A switch that is declared failed starts further incarnations by itself between two
            // crashes.
            incarnation: Incarnation(life << 8),
            controllers: self.plan.controllers(self.topology.processes()),
            ..self.plan.switch.clone()
        };
        let is_edge = matches!(vertex, Vertex::Host(_)) && config.form == Form::OffChip;
        let form = if is_edge { Form::Edge } else { config.form };
        let switch = Switch::new(onepipe_switch::Config { form, ..config });
        let switch = switch.expect("the plan's switch is in range");
        if life > 0 {
            self.on_reborn(node, false);
        }
        let Vertex::Host(host) = vertex else {
            return Node::Switch(Element::new(switch, self.plan.bug));
        };
        let ids = self.topology.processes_of(host);
        if self.topology.processes_per_host() == 1 && ids.start >= self.members {
            let controller = self.controller(ProcessId(ids.start));
            return Node::Controller(Box::new(controller), self.topology.network_card());
        }
        let occupants = ids.map(|id| self.occupant(ProcessId(id))).collect();
        Node::Host(Host::new(Element::new(switch, None), occupants))
    }

    fn on_start(&mut self, mut at: At<'_>, machine: &mut Node) {
        if let Node::Switch(_) = machine {
            return;
        }
        self.start_controllers(&mut at);
        let Some(load) = self.plan.load else { return };
        let earliest_ps =
            (self.plan.load_starts_ns * NANOSECOND).saturating_sub(at.instant.as_ps());
        for port in 0..self.topology.processes_per_host() {
            let id = self.id(at.node, Port(port));
            let first_ps = match load.pace {
                Pace::ClosedLoop { .. } => 0,
                Pace::Every { ns } => {
                    let mut random = Random::named(self.plan.seed, "pace", id.0.into());
                    random.below(ns.max(1) * NANOSECOND)
                }
            };
            at.alarm(earliest_ps + first_ps, u32::from(port));
        }
    }

    fn on_event(
        &mut self,
        mut at: At<'_>,
        machine: &mut Node,
        event: <Node as onepipe_base::Machine>::Event,
    ) {
        let (port, event) = match event {
            HostEvent::Process(port, event) => (port, event),
            HostEvent::Switch(event) => {
                self.note(at.instant, || format!("switch {} says {event:?}", at.node.0));
                if event == SwitchEvent::Restarted {
                    self.on_reborn(at.node, true);
                }
                return;
            }
        };
        let event = match event {
            Said::Process(event) => event,
            Said::Controller(event) => return self.on_court(&at, machine, port, event),
        };
        if self.touched.last() != Some(&port) {
            self.touched.push(port);
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

    fn on_settled(&mut self, mut at: At<'_>, machine: &mut Node) {
        while let Some(port) = self.touched.pop() {
            self.look(&mut at, machine, port);
        }
        // One more in round-robin order, so that each process is inspected now and then.
        let turn = &mut self.turns[at.node.index()];
        let port = Port(*turn);
        *turn = if *turn + 1 < self.topology.processes_per_host() { *turn + 1 } else { 0 };
        self.look(&mut at, machine, port);
        self.serve_controllers(&mut at, machine);
    }

    fn on_alarm(&mut self, mut at: At<'_>, machine: &mut Node, token: u32) {
        let port = Port(token as u16);
        match Alarm::of(token) {
            Alarm::Load => {}
            other => return self.on_other_alarm(&mut at, machine, port, other),
        }
        let Some(process) = machine.process_mut(port) else { return };
        let id = process.endpoint.config().process.index();
        self.seats[id].is_retrying = false;
        let Some(load) = self.plan.load else { return };
        if !self.is_loading {
            return;
        }
        match load.pace {
            Pace::ClosedLoop { .. } => self.refill(&mut at, process),
            Pace::Every { ns } => {
                self.submit_next(&mut at, process);
                at.alarm(ns * NANOSECOND, token);
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
    fn fetch(&self, node: NodeId, machine: &Node, frame: &[u8]) -> u64 {
        let Some(header) = onepipe_wire::header_unchecked(frame) else { return 0 };
        let first = self.topology.processes_of(HostId(node.0)).start;
        let port = Port(header.dst().0.wrapping_sub(first) as u16);
        machine.process(port).map_or(0, |process| process.endpoint.prefetch(frame))
    }

    #[inline]
    fn on_departure(&mut self, instant: Instant, link: LinkId, frame: &[u8]) {
        self.links.departed(link.0, frame, instant.as_ns());
        // The links of hosts come first, and every frame leaves its host before any other node.
        if self.court.is_some() && link.0 < self.topology.hosts() {
            self.note_stamps(instant, link, frame);
        }
    }
}
