//! Minimal machines for tests: hosts that send given frames and report received ones, and switches
//! that forward.

use std::collections::VecDeque;

use onepipe_base::{
    Incarnation, Machine, Mono, Now, Port, ProcessId, Promises, Psn, Transmit, Verdict,
};
use onepipe_sim_engine::{Instant, NANOSECOND};
use onepipe_sim_network::{
    Application, Config, Divide, DividedApplication, Fault, LinkId, Network, NodeContext, NodeId,
};
use onepipe_topology::{FlowKey, NextHop, Node, Route, Shape, Spread, Topology};
use onepipe_wire::{Header, Opcode, parse_header, seal};

/// Frames with this number or a higher one are hop-only frames.
pub const HOP_ONLY: u32 = 1_000;
/// An alarm with this token panics.
pub const PANIC: u32 = 7_777;

/// A host or a switch.
#[derive(Debug)]
pub struct TestMachine {
    id: u32,
    ports: u16,
    lower: u16,
    /// `None` for a host.
    route: Option<Route>,
    /// Frames to send: receiver, number, payload length.
    pub outbox: Vec<(u32, u32, usize)>,
    received: VecDeque<(u32, u32)>,
    /// Deadline of the timer, and the times at which it fired.
    pub timer: Option<Mono>,
    pub fired: Vec<Mono>,
}

impl Machine for TestMachine {
    type Event = (u32, u32);

    fn handle_frame(&mut self, _now: Now, _port: Port, frame: &mut [u8]) -> Verdict {
        let Ok((header, _)) = parse_header(frame) else { return Verdict::Dropped };
        let Some(route) = &self.route else {
            self.received.push_back((header.src().0, header.psn().0));
            return Verdict::Consumed;
        };
        let flow = FlowKey { src: header.src(), dst: header.dst(), psn: header.psn() };
        let ports = match route.next(header.dst()) {
            None => return Verdict::Dropped,
            Some(NextHop::Down(ports)) => ports,
            Some(NextHop::Up) => {
                onepipe_topology::PortRange::new(Port(self.lower), self.ports - self.lower)
            }
        };
        Verdict::Forward(Spread::PerFlow.choose(ports, self.id, flow))
    }

    fn handle_timeout(&mut self, now: Now) {
        assert!(
            self.timer.take().expect("a timer is set") <= now.mono,
            "rule D5: a timer never fires early"
        );
        self.fired.push(now.mono);
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        let (to, number, payload) = self.outbox.pop()?;
        let opcode = if number < HOP_ONLY { Opcode::Data } else { Opcode::Join };
        let header = Header::new(opcode, ProcessId(self.id), ProcessId(to), Incarnation(0))
            .stamped(now.sync, Promises::both(now.sync), Psn(number));
        Some(Transmit { port: Port(self.ports - 1), bytes: seal(slot, header, payload) })
    }

    fn poll_event(&mut self) -> Option<(u32, u32)> {
        self.received.pop_front()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        self.timer
    }
}

/// Records received frames: instant, receiving host, sender, number.
#[derive(Debug, Default)]
pub struct Log {
    /// `None` if this is the application of one node.
    topology: Option<Topology>,
    pub received: Vec<(Instant, NodeId, u32, u32)>,
    pub alarms: Vec<(Instant, u32)>,
    pub incarnations: Vec<(NodeId, u32)>,
    pub crash_requested: Vec<NodeId>,
    pub departures: u64,
    /// Of each frame received by another node: its sender and its number, as its sender is notified
    /// of it.
    pub observed: Vec<(u32, u32)>,
    observations: Vec<(NodeId, (u32, u32))>,
}

impl Divide<TestMachine> for Log {
    type Part = Self;

    fn divide(&mut self) -> Option<Vec<Self>> {
        let topology = self.topology.as_ref().expect("the whole is divided");
        Some(topology.nodes().map(|_| Self::default()).collect())
    }

    fn unite(&mut self, parts: Vec<Self>) {
        for part in parts {
            self.received.extend(part.received);
            self.alarms.extend(part.alarms);
            self.observed.extend(part.observed);
            self.departures += part.departures;
        }
    }
}

impl DividedApplication<TestMachine> for Log {
    type Observation = (u32, u32);

    fn take_observations(&mut self) -> impl Iterator<Item = (NodeId, (u32, u32))> {
        self.observations.drain(..)
    }

    fn handle_observation(&mut self, observation: (u32, u32)) {
        self.observed.push(observation);
    }
}

impl Application<TestMachine> for Log {
    fn build(&mut self, node: NodeId, incarnation: u32) -> TestMachine {
        self.incarnations.push((node, incarnation));
        let topology = self.topology.as_ref().expect("a part builds no node");
        let vertex = topology.nodes().nth(node.index()).expect("the node is in the topology");
        let ports = topology.ports(vertex);
        let route = matches!(vertex, Node::Switch(_)).then(|| topology.route(vertex));
        TestMachine {
            id: node.0,
            ports: ports.total(),
            lower: ports.lower,
            route,
            outbox: Vec::new(),
            received: VecDeque::new(),
            timer: None,
            fired: Vec::new(),
        }
    }
    fn on_start(&mut self, _at: NodeContext<'_>, _machine: &mut TestMachine) {}
    fn on_event(
        &mut self,
        at: NodeContext<'_>,
        _machine: &mut TestMachine,
        (from, number): (u32, u32),
    ) {
        self.received.push((at.instant, at.node, from, number));
        if self.topology.is_none() {
            self.observations.push((NodeId(from), (at.node.0, number)));
        }
    }
    fn on_drained(&mut self, _at: NodeContext<'_>, _machine: &mut TestMachine) {}
    fn on_alarm(&mut self, at: NodeContext<'_>, _machine: &mut TestMachine, token: u32) {
        assert_ne!(token, PANIC, "an alarm that panics");
        self.alarms.push((at.instant, token));
    }
    fn on_crash(&mut self, _instant: Instant, node: NodeId) {
        self.crash_requested.push(node);
    }
    fn on_departure(&mut self, _instant: Instant, _link: LinkId, _frame: &[u8]) {
        self.departures += 1;
    }
}

pub type TestNetwork = Network<TestMachine, Log>;

/// Builds a network with one process on each host.
pub fn network(shape: Shape, config: Config, seed: u64) -> TestNetwork {
    let topology = Topology::new(shape, 1).expect("the shape is small");
    let log = Log { topology: Some(topology.clone()), ..Log::default() };
    let mut network = Network::new(topology, config, seed, log);
    network.allow_threads();
    network
}

/// Sends the frames `numbers` from host `from` to host `to` in ascending order.
pub fn send(
    network: &mut TestNetwork,
    from: u32,
    to: u32,
    numbers: std::ops::Range<u32>,
    payload: usize,
) {
    network.command(NodeId(from), |_, harness, _| {
        harness.outbox.extend(numbers.rev().map(|number| (to, number, payload)));
    });
}

/// Returns the numbers of the frames received at `host`, in order.
pub fn numbers(network: &TestNetwork, host: u32) -> Vec<u32> {
    let at_host = network.application.received.iter().filter(|(_, node, ..)| *node == NodeId(host));
    at_host.map(|(.., number)| *number).collect()
}

/// Returns the links between two adjacent nodes, both directions.
pub fn between(network: &TestNetwork, one: NodeId, other: NodeId) -> Vec<LinkId> {
    let mut links: Vec<LinkId> = network.boundary_links(|node| node == one);
    let ends: Vec<_> = network.links().collect();
    links.retain(|link| {
        let (_, from, to) = ends[link.index()];
        from == other || to == other
    });
    links
}

/// Injects a fault into both directions of a link.
pub fn inject_both(
    network: &mut TestNetwork,
    one: NodeId,
    other: NodeId,
    fault: impl Fn(LinkId) -> Fault,
) {
    for link in between(network, one, other) {
        network.inject(fault(link));
    }
}

pub const fn ns(ns: u64) -> Instant {
    Instant::from_ps(ns * NANOSECOND)
}
