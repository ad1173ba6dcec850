//! Opens and closes flows, and notes what comes of them.

use hdrhistogram::Histogram;
use onepipe_base::{Port, ProcessId};
use onepipe_sim_engine::{Instant, NANOSECOND};
use onepipe_sim_network::{Application, At, LinkConfig, LinkId, NodeId};
use onepipe_sim_traffic::{FlowId, Forwarder, TcpConfig};
use onepipe_topology::{Node as Vertex, Topology};

use crate::egress::Egress;
use crate::node::Node;
use crate::setup::Setup;
use crate::tenants::{Said, Tenants};

/// Alarms from here on close flows, those below open them.
const CLOSING: u32 = 1 << 24;
/// Alarms from here on begin to ask.
const ASKING: u32 = 1 << 25;

/// What commands and observes the hosts.
#[derive(Debug)]
pub(crate) struct Bench {
    setup: Setup,
    topology: Topology,
    /// As which flow of its host each flow was opened.
    pub opened: Vec<Option<FlowId>>,
    /// How long answers took, in ns.
    pub pongs_ns: Histogram<u64>,
    /// How long the flows took that had an end, in ns.
    pub flows_ns: Histogram<u64>,
    /// By link: how fast it is, and the queue before it; `None` where a host sends.
    pub egresses: Vec<Option<(LinkConfig, Egress)>>,
}

impl Bench {
    pub fn new(setup: Setup, topology: Topology) -> Self {
        let histogram = || Histogram::new_with_bounds(1, 100_000_000_000, 3);
        let links = topology.links().map(|link| match (link.from.node, link.to.node) {
            (Vertex::Switch(_), Vertex::Switch(_)) => Some(setup.switch_link),
            (Vertex::Switch(_), _) => Some(setup.host_link),
            _ => None,
        });
        Self {
            opened: vec![None; setup.flows.len()],
            pongs_ns: histogram().expect("the bounds are in range"),
            flows_ns: histogram().expect("the bounds are in range"),
            egresses: links.map(|link| Some((link?, Egress::default()))).collect(),
            setup,
            topology,
        }
    }

    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// What was noted so far does not count.
    pub fn begin(&mut self) {
        self.pongs_ns.reset();
        self.flows_ns.reset();
        self.egresses.iter_mut().flatten().for_each(|(_, egress)| egress.begin());
    }
}

impl Application<Node> for Bench {
    fn build(&mut self, node: NodeId, _life: u32) -> Node {
        let vertex = self.topology.nodes().nth(node.index()).expect("a node of the topology");
        let ports = self.topology.ports(vertex);
        if let Vertex::Switch(_) = vertex {
            return Node::Switch(Forwarder::new(self.topology.route(vertex), ports, node.0));
        }
        let (host, card) = (ProcessId(node.0), Port(ports.total() - 1));
        let config = TcpConfig { react: self.setup.react, ..TcpConfig::new(host, card) };
        Node::Host(Tenants::new(config, host, card))
    }

    fn on_start(&mut self, mut at: At<'_>, _machine: &mut Node) {
        let is_here = |host: u32| host == at.node.0;
        let (mut alarms, now_ns) = (Vec::new(), at.instant.as_ns());
        for (token, flow) in (0u32..).zip(&self.setup.flows) {
            if is_here(flow.demand.from) {
                alarms.push((flow.demand.at_ns, token));
                alarms.extend(flow.closes_ns.map(|closes_ns| (closes_ns, CLOSING + token)));
            }
        }
        for (token, ping) in (ASKING..).zip(&self.setup.pings) {
            if is_here(ping.from) {
                alarms.push((now_ns, token));
            }
        }
        for (at_ns, token) in alarms {
            at.alarm(at_ns.saturating_sub(now_ns) * NANOSECOND, token);
        }
    }

    fn on_event(&mut self, _at: At<'_>, _machine: &mut Node, said: Said) {
        match said {
            Said::Pong(pong) => self.pongs_ns.saturating_record(pong.ns),
            Said::Flow(onepipe_sim_traffic::Event::Done { ns, .. }) => {
                self.flows_ns.saturating_record(ns);
            }
        }
    }

    fn on_settled(&mut self, _at: At<'_>, _machine: &mut Node) {}

    fn on_alarm(&mut self, at: At<'_>, machine: &mut Node, token: u32) {
        let Some(tenants) = machine.tenants_mut() else { return };
        if let Some(asking) = token.checked_sub(ASKING) {
            let ping = self.setup.pings[asking as usize];
            tenants.pinger.ask(at.now, ProcessId(ping.to), ping.every_ns);
        } else if let Some(closing) = token.checked_sub(CLOSING) {
            if let Some(flow) = self.opened[closing as usize] {
                tenants.stack.close(at.now, flow);
            }
        } else {
            let demand = self.setup.flows[token as usize].demand;
            let flow = tenants.stack.open(at.now, ProcessId(demand.to), demand.octets);
            self.opened[token as usize] = Some(flow);
        }
    }

    fn on_crash(&mut self, _instant: Instant, _node: NodeId) {}

    fn on_departure(&mut self, instant: Instant, link: LinkId, frame: &[u8]) {
        if let Some((config, egress)) = &mut self.egresses[link.index()] {
            egress.enter(instant, config, frame.len());
        }
    }
}
