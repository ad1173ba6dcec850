//! A network of hosts with TCP and switches that only forward.

use onepipe_base::{Port, ProcessId};
use onepipe_sim_engine::{Instant, NANOSECOND};
use onepipe_sim_network::{
    Application, Config, FabricEvent, FabricNode, LinkConfig, LinkId, Network, NodeContext, NodeId,
};
use onepipe_sim_traffic::{
    CongestionControl, Event, FlowId, FlowSpec, Forwarder, Stack, TcpConfig,
};
use onepipe_topology::{Node as Vertex, Shape, Topology};

/// A host or a switch.
pub type Node = FabricNode<Stack, Forwarder>;

/// Opens the flows, and records those that complete.
#[derive(Debug)]
pub struct Flows {
    topology: Topology,
    congestion_control: CongestionControl,
    pub specs: Vec<FlowSpec>,
    /// The flow id of each opened flow at its host.
    pub opened: Vec<Option<FlowId>>,
    /// Host, flow, length and completion time in ns.
    pub done: Vec<(u32, FlowId, u64, u64)>,
}

impl Application<Node> for Flows {
    fn build(&mut self, node: NodeId, _incarnation: u32) -> Node {
        let vertex = self.topology.nodes().nth(node.index()).expect("a node of the topology");
        let ports = self.topology.ports(vertex);
        match vertex {
            Vertex::Switch(_) => {
                Node::Switch(Forwarder::new(self.topology.route(vertex), ports, 2, 0))
            }
            _ => {
                let config = TcpConfig {
                    congestion_control: self.congestion_control,
                    ..TcpConfig::new(ProcessId(node.0), Port(ports.total() - 1))
                };
                Node::Host(Stack::new(config).expect("the defaults are in range"))
            }
        }
    }

    fn on_start(&mut self, mut at: NodeContext<'_>, _machine: &mut Node) {
        for (token, spec) in (0u32..).zip(&self.specs) {
            if spec.from == at.node.0 {
                at.alarm(spec.at_ns * NANOSECOND, token);
            }
        }
    }

    fn on_event(
        &mut self,
        at: NodeContext<'_>,
        _machine: &mut Node,
        event: FabricEvent<Event, (), ()>,
    ) {
        let FabricEvent::Host(Event::Done { flow, bytes, ns }) = event else { return };
        self.done.push((at.node.0, flow, bytes, ns));
    }

    fn on_drained(&mut self, _at: NodeContext<'_>, _machine: &mut Node) {}

    fn on_alarm(&mut self, at: NodeContext<'_>, machine: &mut Node, token: u32) {
        let Node::Host(stack) = machine else { return };
        let spec = self.specs[token as usize];
        let flow = stack.open(at.now, ProcessId(spec.to), spec.bytes);
        self.opened[token as usize] = Some(flow);
    }

    fn on_crash(&mut self, _instant: Instant, _node: NodeId) {}

    fn on_departure(&mut self, _instant: Instant, _link: LinkId, _frame: &[u8]) {}
}

pub type Net = Network<Node, Flows>;

/// A link of 10 Gbit/s with 1 us of latency.
pub const LINK: LinkConfig = LinkConfig {
    rate_bits_per_s: 10_000_000_000,
    propagation_ns: 1_000,
    queue_bytes_max: 256 << 10,
    ecn_threshold_bytes: 30_000,
    overhead_bytes: 66,
    classes: 1,
};

/// Returns a star of `hosts` hosts.
pub fn star(
    hosts: u32,
    link: LinkConfig,
    congestion_control: CongestionControl,
    specs: Vec<FlowSpec>,
    seed: u64,
) -> Net {
    let shape = Shape::star(hosts).expect("the hosts fit one switch");
    let topology = Topology::new(shape, 1).expect("one process per host");
    let config = Config { host_link: link, switch_link: link, ..Config::default() };
    let opened = vec![None; specs.len()];
    let flows =
        Flows { topology: topology.clone(), congestion_control, specs, opened, done: Vec::new() };
    Network::new(topology, config, seed, flows)
}

/// Returns the link from the switch to a host.
pub fn down_link(net: &Net, host: u32) -> LinkId {
    let to = |(_, _, to): &(LinkId, NodeId, NodeId)| to.0 == host;
    net.links().find(to).expect("every host has a link").0
}

/// Returns the TCP of a host.
pub fn stack(net: &Net, host: u32) -> &Stack {
    match net.machine(NodeId(host)) {
        Some(Node::Host(stack)) => stack,
        _ => panic!("node {host} is not a host"),
    }
}

/// Returns the bytes received of each flow.
pub fn received(net: &Net) -> Vec<u64> {
    let of = |(spec, flow): (&FlowSpec, &Option<FlowId>)| {
        let from = ProcessId(spec.from);
        flow.map_or(0, |flow| stack(net, spec.to).received_bytes(from, flow))
    };
    net.application.specs.iter().zip(&net.application.opened).map(of).collect()
}

/// Samples the queue before a link every microsecond. Returns the lengths in bytes, ascending.
pub fn queue_lengths(net: &mut Net, link: LinkId, us: u64) -> Vec<u64> {
    let mut lengths: Vec<u64> = (0..us)
        .map(|_| {
            net.run_for(1_000 * NANOSECOND);
            net.backlog_bytes(link)
        })
        .collect();
    lengths.sort_unstable();
    lengths
}
