//! Builds the nodes, generates the load, and measures barriers and the controller.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};

use onepipe_base::{
    Address, Controllers, HostId, Incarnation, Instance, Machine, Mono, Port, ProcessId, SwitchId,
    Timestamp,
};
use onepipe_controller::{
    Controller, Epoch, Event as Decision, Member, MemberLink, Record, RecordId, Recovery,
};
use onepipe_endpoint::{Endpoint, Event, Message};
use onepipe_node::{Host, HostEvent};
use onepipe_sim_engine::{Instant, NANOSECOND, Random};
use onepipe_sim_network::{Application, FabricEvent, LinkId, NodeContext, NodeId};
use onepipe_switch::{Switch, SwitchEvent};
use onepipe_topology::{End, Node as Vertex, Topology};
use onepipe_wire::{AnnounceView, HEADER_LEN, Opcode, Side, parse_header};

use crate::Calibration;
use crate::node::{FilteredSwitch, Node, process, process_mut};
use crate::stall::StallMeter;

/// Interval between the scatterings of a sender.
const SEND_EVERY_NS: u64 = 10_000;

/// Time in which a controller that loads the members from the store waits for what processes know
/// of its log, in ns. No node announces itself before the failure, so the wait must be over by
/// then: in a fabric that has been running for long, the log has been compared long ago.
const COMPARISON_NS: u64 = 30_000;

/// Tokens of alarms.
const ALARM_SEND: u32 = 0;
const ALARM_STORE: u32 = 1;

/// Milestones of a recovery.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Milestones {
    /// A neighbour has detected the failure.
    pub detected: Option<Instant>,
    /// The first failure was decided and recorded.
    pub decided: Option<Instant>,
    /// Every correct process was notified and has completed its callbacks.
    pub noticed: Option<Instant>,
    /// The controller began to release frozen links.
    pub resuming: Option<Instant>,
}

/// Work of the controller on its graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControllerWork {
    /// Number of evaluations.
    pub evaluations: u64,
    /// Nodes and links visited by the evaluations.
    pub visits: u64,
    /// CPU time of the evaluations, in ns of virtual time.
    pub ns: u64,
}

/// The application of the simulated fabric.
#[derive(Debug)]
pub(crate) struct Observer {
    topology: Topology,
    calibration: Calibration,
    recovery: Recovery,
    random: Random,
    /// Whether each host runs a process.
    pub members: Vec<bool>,
    /// Whether the process of each host generates load.
    is_sender: Vec<bool>,
    pub controller: NodeId,
    /// Records on their way to the store.
    writing: VecDeque<RecordId>,
    /// Nodes with a path to the controller, from the controller's view.
    pub connected: usize,
    /// Announcements received by the controller.
    pub announcements: Cell<u64>,
    /// Latest announcement of each node: its generation, and the first link of its last part.
    known: RefCell<BTreeMap<ProcessId, (u32, u16)>>,
    /// Whether the controller loads the members from the store when it starts.
    pub starts_from_store: bool,
    pub stalls: Vec<StallMeter>,
    /// Number of correct processes whose barrier has not passed the failure.
    pub waiting: usize,
    /// Whether the failure has happened. From then on the controller's CPU takes time, and the
    /// milestones are recorded.
    pub has_failed: bool,
    pub milestones: Milestones,
    /// Number of processes declared failed.
    pub failures: usize,
    /// Frames with new information, sent or received by the controller since the failure.
    pub contacts: Cell<u64>,
    /// The controller's counters of evaluations and visits at the last call of
    /// `evaluation_cost_ns`.
    last_evaluations: (u64, u64),
    /// Work of the controller since the failure.
    pub controller_work: ControllerWork,
}

impl Observer {
    pub(crate) fn new(
        topology: Topology,
        calibration: Calibration,
        recovery: Recovery,
        members: Vec<bool>,
        senders: u32,
        seed: u64,
    ) -> Self {
        let hosts = topology.hosts();
        // The first `senders` members send.
        let mut senders_left = senders;
        let mut becomes_sender = |is_member: &bool| {
            let is_sender = *is_member && senders_left > 0;
            senders_left -= u32::from(is_sender);
            is_sender
        };
        Self {
            is_sender: members.iter().map(&mut becomes_sender).collect(),
            members,
            controller: NodeId(hosts - 1),
            random: Random::named(seed, "recovery", 0),
            writing: VecDeque::new(),
            connected: 0,
            announcements: Cell::new(0),
            known: RefCell::new(BTreeMap::new()),
            starts_from_store: false,
            stalls: vec![StallMeter::NEW; hosts as usize],
            waiting: 0,
            has_failed: false,
            milestones: Milestones::default(),
            failures: 0,
            contacts: Cell::new(0),
            last_evaluations: (0, 0),
            controller_work: ControllerWork::default(),
            topology,
            calibration,
            recovery,
        }
    }

    /// Returns the controllers: one, with the last process id.
    fn controllers(&self) -> Controllers {
        Controllers { first: ProcessId(self.topology.processes() - 1), count: 1 }
    }

    /// Returns the interval between announcements without changes: long enough that the
    /// announcements of all links take at most a tenth of the controller's time.
    ///
    /// With `starts_from_store` the fabric stands for one that has been running for long, and no
    /// announcement may be repeated before the failure. Nodes that have just started repeat theirs
    /// after as little as half a thousandth of the interval, hence the long interval.
    fn announce_interval_ns(&self) -> u64 {
        if self.starts_from_store {
            return 100_000_000_000;
        }
        let nodes = u64::from(self.topology.hosts() * 2 + self.topology.switches());
        10_000_000.max(5 * nodes * self.calibration.contact_ns)
    }

    fn switch(&self, vertex: Vertex, id: u32) -> Switch {
        let ports = self.topology.ports(vertex);
        let route = self.topology.route(vertex);
        let beacon_interval_ns = self.calibration.beacon_interval_ns;
        let config = onepipe_switch::Config {
            switch: SwitchId(id),
            controllers: Some(self.controllers()),
            beacon_interval_ns,
            link_timeout_ns: 10 * beacon_interval_ns,
            announce_interval_ns: self.announce_interval_ns(),
            ..onepipe_switch::Config::new(ports.lower, ports.upper, route)
        };
        Switch::new(config).expect("a calibration is in range")
    }

    fn endpoint(&self, process: ProcessId) -> Endpoint {
        let beacon_interval_ns = self.calibration.beacon_interval_ns;
        let config = onepipe_endpoint::Config {
            processes_max: self.topology.processes(),
            controllers: Some(self.controllers()),
            beacon_interval_ns,
            link_timeout_ns: 10 * beacon_interval_ns,
            announce_interval_ns: self.announce_interval_ns(),
            ..onepipe_endpoint::Config::new(process, Incarnation(1))
        };
        Endpoint::new(config).expect("a calibration is in range")
    }

    fn new_controller(&self) -> Controller {
        let controllers = self.controllers();
        let defaults = onepipe_controller::Config::new(controllers.first, controllers);
        let config = onepipe_controller::Config {
            incarnation: Incarnation(1),
            recovery: self.recovery,
            frame_len_max: 1_472,
            processes_max: self.topology.processes(),
            quiet_ns: self.calibration.quiet_ns,
            grace_ns: if self.starts_from_store { COMPARISON_NS } else { defaults.grace_ns },
            ..defaults
        };
        Controller::new(config).expect("a calibration is in range")
    }

    /// Passes the controller's records to the store, and charges its CPU for graph evaluations.
    fn serve(&mut self, at: &mut NodeContext<'_>, controller: &mut Controller) {
        let evaluation_cost_ns = self.evaluation_cost_ns(controller);
        at.charge_cpu(evaluation_cost_ns);
        while let Some((id, _)) = controller.poll_persist() {
            self.writing.push_back(id);
            at.alarm((self.calibration.store_ns + evaluation_cost_ns) * NANOSECOND, ALARM_STORE);
        }
    }

    /// Returns the cost of the evaluations since the last call, in ns. Evaluations before the
    /// failure are free.
    fn evaluation_cost_ns(&mut self, controller: &Controller) -> u64 {
        let (stats, calibration) = (controller.stats(), &self.calibration);
        let evaluations =
            stats.evaluations - std::mem::replace(&mut self.last_evaluations.0, stats.evaluations);
        let visits = stats.visits - std::mem::replace(&mut self.last_evaluations.1, stats.visits);
        if !self.has_failed {
            return 0;
        }
        let evaluation_cost_ns =
            evaluations * calibration.evaluation_ns + visits * calibration.visit_ns;
        self.controller_work.evaluations += evaluations;
        self.controller_work.visits += visits;
        self.controller_work.ns += evaluation_cost_ns;
        evaluation_cost_ns
    }

    fn on_decision(&mut self, at: Instant, now: Mono, decision: Decision) {
        match decision {
            _ if !self.has_failed => {}
            Decision::Failed { failed, .. } => {
                let is_process = matches!(failed.instance.address, Address::Process(_));
                self.failures += usize::from(is_process);
                self.milestones.decided.get_or_insert(at);
            }
            Decision::Noticed { .. } => self.milestones.noticed = Some(at),
            Decision::Resumed { started_at, .. } => {
                let ago_ps = now.since_ns(started_at) * NANOSECOND;
                let started_at = Instant::from_ps(at.as_ps().saturating_sub(ago_ps));
                self.milestones.resuming.get_or_insert(started_at);
            }
            _ => {}
        }
    }

    /// Records an announcement. Returns whether it contains new information.
    fn note_announcement(&self, from: ProcessId, frame: &[u8]) -> bool {
        self.announcements.set(self.announcements.get() + 1);
        let Ok(view) = AnnounceView::parse(frame.get(HEADER_LEN..).unwrap_or_default()) else {
            return false;
        };
        let part = (view.announce.generation, view.announce.first);
        self.known.borrow_mut().insert(from, part).is_none_or(|known| known < part)
    }

    /// Returns the store's content that a controller loads when it takes over a fabric in which all
    /// members have joined.
    fn records(&self) -> Vec<Record> {
        let instance = |vertex| {
            let (address, incarnation) = match vertex {
                Vertex::Process(id) => (Address::Process(id), 1),
                Vertex::Host(id) => (Address::Switch(SwitchId(id.0)), 0),
                Vertex::Switch(id) => (Address::Switch(SwitchId(self.topology.hosts() + id.0)), 0),
            };
            Instance { address, incarnation: Incarnation(incarnation) }
        };
        let is_absent = |vertex| match vertex {
            Vertex::Process(ProcessId(id)) | Vertex::Host(HostId(id)) => !self.members[id as usize],
            Vertex::Switch(_) => false,
        };
        let processes = (0..self.topology.processes()).map(|id| Vertex::Process(ProcessId(id)));
        let all = processes.chain(self.topology.nodes()).filter(|vertex| !is_absent(*vertex));
        let members = all.map(|node| {
            let ports = self.topology.ports(node);
            let link = |port: u16| {
                let side = if port < ports.lower { Side::Lower } else { Side::Upper };
                let peer = self.topology.peer(End { node, port: Port(port) })?.node;
                (!is_absent(peer)).then(|| MemberLink { side, instance: instance(peer) })
            };
            Member {
                instance: instance(node),
                links: (0..ports.total()).filter_map(link).collect(),
            }
        });
        vec![Record::Members(members.collect())]
    }

    /// Scatters to two other processes at random.
    fn scatter(&mut self, from: u32, endpoint: &mut Endpoint) {
        let mut other = || {
            let hosts = u64::from(self.topology.hosts());
            let drawn = (0..64).map(|_| self.random.below(hosts) as u32);
            let mut others = drawn.filter(|to| *to != from && self.members[*to as usize]);
            others.next().map(ProcessId)
        };
        let payload = [7; 64];
        let messages: Vec<Message<'_>> = [other(), other()]
            .into_iter()
            .flatten()
            .map(|to| Message { to, payload: &payload })
            .collect();
        if !messages.is_empty() {
            // A scattering is refused if a receiver has failed or the buffer is full. No single one
            // matters: another follows.
            let _ = endpoint.scatter_reliably(&messages);
        }
    }
}

impl Application<Node> for Observer {
    fn build(&mut self, node: NodeId, _incarnation: u32) -> Node {
        let hosts = self.topology.hosts();
        if node == self.controller {
            return Node::Controller(Box::new(self.new_controller()), self.topology.network_card());
        }
        if node.0 >= hosts {
            let vertex = Vertex::Switch(SwitchId(node.0 - hosts));
            return Node::Switch(FilteredSwitch {
                switch: self.switch(vertex, node.0),
                drops_announcements: self.starts_from_store,
            });
        }
        if !self.members[node.index()] {
            return Node::Idle;
        }
        let switch = self.switch(Vertex::Host(HostId(node.0)), node.0);
        Node::Host(Host::new(switch, vec![self.endpoint(ProcessId(node.0))]))
    }

    fn on_start(&mut self, mut at: NodeContext<'_>, machine: &mut Node) {
        if let Node::Controller(controller, _) = machine {
            let records = if self.starts_from_store { self.records() } else { Vec::new() };
            controller.activate(at.now, Epoch(1), &records);
            self.serve(&mut at, controller);
        }
        if at.node.0 < self.topology.hosts() && self.is_sender[at.node.index()] {
            let first_ps = self.random.below(SEND_EVERY_NS * NANOSECOND);
            at.alarm(SEND_EVERY_NS * NANOSECOND + first_ps, ALARM_SEND);
        }
    }

    fn on_event(
        &mut self,
        at: NodeContext<'_>,
        machine: &mut Node,
        event: <Node as Machine>::Event,
    ) {
        match event {
            FabricEvent::Switch(SwitchEvent::LinkLost(_))
            | FabricEvent::Host(
                HostEvent::Switch(SwitchEvent::LinkLost(_))
                | HostEvent::Process(_, Event::LinkLost(_)),
            ) => {
                if self.has_failed {
                    self.milestones.detected.get_or_insert(at.instant);
                }
            }
            FabricEvent::Controller(decision) => {
                self.on_decision(at.instant, at.now.mono, decision)
            }
            FabricEvent::Host(HostEvent::Process(_, event)) => {
                let Some(endpoint) = process_mut(machine) else { return };
                match event {
                    Event::Delivered(delivery) => endpoint.release(delivery),
                    Event::ProcessFailed(_) => endpoint.on_failure_handled(),
                    _ => {}
                }
            }
            FabricEvent::Switch(_) | FabricEvent::Host(HostEvent::Switch(_)) => {}
        }
    }

    fn on_drained(&mut self, mut at: NodeContext<'_>, machine: &mut Node) {
        match machine {
            Node::Controller(controller, _) => {
                self.connected = controller.connected();
                self.serve(&mut at, controller);
            }
            _ => {
                let Some(endpoint) = process(machine) else { return };
                let stall = &mut self.stalls[at.node.index()];
                if stall.observe(at.instant, endpoint.commit_barrier()) {
                    self.waiting -= 1;
                }
            }
        }
    }

    fn on_alarm(&mut self, mut at: NodeContext<'_>, machine: &mut Node, token: u32) {
        if token == ALARM_SEND {
            if let Some(endpoint) = process_mut(machine) {
                self.scatter(at.node.0, endpoint);
                at.alarm(SEND_EVERY_NS * NANOSECOND, ALARM_SEND);
            }
            return;
        }
        if let (Node::Controller(controller, _), Some(id)) = (machine, self.writing.pop_front()) {
            controller.handle_persisted(at.now, id, Ok(()));
            self.serve(&mut at, controller);
        }
    }

    fn on_crash(&mut self, _instant: Instant, _node: NodeId) {}

    fn on_departure(&mut self, _instant: Instant, _link: LinkId, _frame: &[u8]) {}

    fn cpu_ns(&self, node: NodeId, frame: &[u8]) -> u64 {
        if node != self.controller {
            return 0;
        }
        let Ok((header, opcode)) = parse_header(frame) else { return 0 };
        if opcode.is_beacon() || opcode == Opcode::Hello {
            return 0;
        }
        let is_new = opcode != Opcode::Announce || self.note_announcement(header.src(), frame);
        match (self.has_failed, is_new) {
            (false, _) => 0,
            (true, false) => self.calibration.repeat_ns,
            (true, true) => {
                let is_notice = matches!(opcode, Opcode::Notice | Opcode::Completed);
                let counts_failures = is_notice && self.calibration.has_notice_per_failure;
                let contacts = if counts_failures { self.failures.max(1) as u64 } else { 1 };
                self.contacts.set(self.contacts.get() + contacts);
                contacts * self.calibration.contact_ns / 2
            }
        }
    }
}

/// Returns the reading of a clock without error.
pub(crate) fn true_timestamp(origin: Timestamp, at: Instant) -> Timestamp {
    origin.wrapping_add_ns(at.as_ns())
}
