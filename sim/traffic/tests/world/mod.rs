//! Hosts with a TCP and nothing else, switches that forward and nothing else.

use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Transmit, Verdict};
use onepipe_sim_engine::{Instant, NANOSECOND};
use onepipe_sim_network::{Application, At, Config, LinkConfig, LinkId, Network, NodeId};
use onepipe_sim_traffic::{Demand, Event, FlowId, Forwarder, React, Stack, TcpConfig};
use onepipe_topology::{Node as Vertex, Shape, Topology};

/// A host or a switch.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "one value a node, in place")]
pub enum Node {
    Host(Stack),
    Switch(Forwarder),
}

impl Machine for Node {
    type Event = Event;

    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        match self {
            Self::Host(stack) => stack.handle_frame(now, port, frame),
            Self::Switch(switch) => switch.handle_frame(now, port, frame),
        }
    }

    fn handle_timeout(&mut self, now: Now) {
        if let Self::Host(stack) = self {
            stack.handle_timeout(now);
        }
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        match self {
            Self::Host(stack) => stack.poll_transmit(now, slot),
            Self::Switch(_) => None,
        }
    }

    fn poll_event(&mut self) -> Option<Event> {
        match self {
            Self::Host(stack) => stack.poll_event(),
            Self::Switch(_) => None,
        }
    }

    fn poll_timeout(&self) -> Option<Mono> {
        match self {
            Self::Host(stack) => stack.poll_timeout(),
            Self::Switch(_) => None,
        }
    }
}

/// Opens the flows that are demanded, and notes which are done.
#[derive(Debug)]
pub struct Flows {
    topology: Topology,
    react: React,
    pub demands: Vec<Demand>,
    /// When each demand was opened as which flow of its host.
    pub opened: Vec<Option<FlowId>>,
    /// Host, flow, how long it was, how long it took in ns.
    pub done: Vec<(u32, FlowId, u64, u64)>,
}

impl Application<Node> for Flows {
    fn build(&mut self, node: NodeId, _life: u32) -> Node {
        let vertex = self.topology.nodes().nth(node.index()).expect("a node of the topology");
        let ports = self.topology.ports(vertex);
        match vertex {
            Vertex::Switch(_) => {
                Node::Switch(Forwarder::new(self.topology.route(vertex), ports, 2, 0))
            }
            _ => {
                let config = TcpConfig {
                    react: self.react,
                    ..TcpConfig::new(ProcessId(node.0), Port(ports.total() - 1))
                };
                Node::Host(Stack::new(config).expect("the defaults are in range"))
            }
        }
    }

    fn on_start(&mut self, mut at: At<'_>, _machine: &mut Node) {
        for (token, demand) in (0u32..).zip(&self.demands) {
            if demand.from == at.node.0 {
                at.alarm(demand.at_ns * NANOSECOND, token);
            }
        }
    }

    fn on_event(&mut self, at: At<'_>, _machine: &mut Node, event: Event) {
        let Event::Done { flow, bytes, ns } = event;
        self.done.push((at.node.0, flow, bytes, ns));
    }

    fn on_settled(&mut self, _at: At<'_>, _machine: &mut Node) {}

    fn on_alarm(&mut self, at: At<'_>, machine: &mut Node, token: u32) {
        let Node::Host(stack) = machine else { return };
        let demand = self.demands[token as usize];
        let flow = stack.open(at.now, ProcessId(demand.to), demand.bytes);
        self.opened[token as usize] = Some(flow);
    }

    fn on_crash(&mut self, _instant: Instant, _node: NodeId) {}

    fn on_departure(&mut self, _instant: Instant, _link: LinkId, _frame: &[u8]) {}
}

pub type World = Network<Node, Flows>;

/// Hosts on one switch, with 10 Gbit/s links of 1 us.
pub const LINK: LinkConfig = LinkConfig {
    rate_bits_per_s: 10_000_000_000,
    propagation_ns: 1_000,
    queue_bytes_max: 256 << 10,
    mark_bytes: 30_000,
    overhead_bytes: 66,
    classes: 1,
};

/// A star of so many hosts.
pub fn star(hosts: u32, link: LinkConfig, react: React, demands: Vec<Demand>, seed: u64) -> World {
    let shape = Shape::star(hosts).expect("so many fit one switch");
    let topology = Topology::new(shape, 1).expect("a process each");
    let config = Config { host_link: link, switch_link: link, ..Config::default() };
    let opened = vec![None; demands.len()];
    let flows = Flows { topology: topology.clone(), react, demands, opened, done: Vec::new() };
    Network::new(topology, config, seed, flows)
}

/// The link from the switch to a host.
pub fn down_link(world: &World, host: u32) -> LinkId {
    let to = |(_, _, to): &(LinkId, NodeId, NodeId)| to.0 == host;
    world.links().find(to).expect("every host has one").0
}

/// The TCP of a host.
pub fn stack(world: &World, host: u32) -> &Stack {
    match world.machine(NodeId(host)) {
        Some(Node::Host(stack)) => stack,
        _ => panic!("{host} is no host"),
    }
}

/// Bytes that have come of each demand.
pub fn received(world: &World) -> Vec<u64> {
    let of = |(demand, flow): (&Demand, &Option<FlowId>)| {
        let from = ProcessId(demand.from);
        flow.map_or(0, |flow| stack(world, demand.to).received_bytes(from, flow))
    };
    world.application.demands.iter().zip(&world.application.opened).map(of).collect()
}

/// Lets so many us pass, and looks at the queue before a link every us. Answers the lengths seen,
/// ascending, in bytes.
pub fn queue_lengths(world: &mut World, link: LinkId, us: u64) -> Vec<u64> {
    let mut lengths: Vec<u64> = (0..us)
        .map(|_| {
            world.run_for(1_000 * NANOSECOND);
            world.backlog_bytes(link)
        })
        .collect();
    lengths.sort_unstable();
    lengths
}
