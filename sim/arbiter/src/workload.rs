//! The workload: opens and closes flows, offers frames, and records measurements.

use hdrhistogram::Histogram;
use onepipe_arbiter::{
    Arbiter, ArbiterConfig, Client, ClientConfig, CommConfig, Config, Core, FailoverConfig, Role,
};
use onepipe_base::{Incarnation, Port, ProcessId};
use onepipe_sim_engine::{Instant, NANOSECOND, Random};
use onepipe_sim_network::{Application, LinkConfig, LinkId, NodeContext, NodeId};
use onepipe_sim_traffic::{FlowId, Forwarder, RawTraffic, TcpConfig};
use onepipe_topology::{Node as Vertex, Topology};

use crate::arbiter_host::ArbiterHost;
use crate::control::Control;
use crate::egress::{Egress, is_in_slot};
use crate::fabric::fabric_of;
use crate::gate::Gated;
use crate::grant_checker::GrantChecker;
use crate::host_traffic::{HostEvent, HostTraffic};
use crate::node::Node;
use crate::setup::{Arbitration, FRAME_LEN_MAX, OfferedLoad, Setup};

/// Alarm tokens from here on close flows; those below open them.
const CLOSING: u32 = 1 << 24;
/// Alarm tokens from here on start pings.
const PINGING: u32 = 1 << 25;
/// Alarm token for the next offered frames.
const OFFERING: u32 = 1 << 26;
/// Number of timeslots for which frames are offered at a time.
const OFFER_SLOTS: u64 = 16;

/// Drives and observes the hosts.
#[derive(Debug)]
pub(crate) struct Workload {
    setup: Setup,
    topology: Topology,
    random: Random,
    /// The flow id of each opened flow at its host.
    pub opened: Vec<Option<FlowId>>,
    /// Round trips of pings, ns.
    pub pongs_ns: Histogram<u64>,
    /// Completion times of finite flows, ns.
    pub flows_ns: Histogram<u64>,
    /// By link: its rate, and the queue before it; `None` for links from hosts, and for links to
    /// arbiters, which only carry control packets.
    pub egresses: Vec<Option<(LinkConfig, Egress)>>,
    /// By link: whether it leads to an endpoint.
    leads_to_endpoint: Vec<bool>,
    /// By link: whether it leads from a host.
    leads_from_host: Vec<bool>,
    pub control: Control,
    pub grant_checker: GrantChecker,
    /// By link: slot frames that have entered it.
    pub slots: Vec<u64>,
}

impl Workload {
    pub fn new(setup: Setup, topology: Topology) -> Self {
        let histogram = || Histogram::new_with_bounds(1, 100_000_000_000, 3);
        let hosts = topology.hosts();
        let endpoints = setup.arbitration.map_or(hosts, |arbitration| arbitration.endpoints);
        let links = topology.links().map(|link| match (link.from.node, link.to.node) {
            (Vertex::Switch(_), Vertex::Switch(_)) => Some(setup.switch_link),
            (Vertex::Switch(_), Vertex::Host(host)) if host.0 < endpoints => Some(setup.host_link),
            _ => None,
        });
        Self {
            random: Random::named(setup.seed, "offered frames", 0),
            opened: vec![None; setup.flows.len()],
            pongs_ns: histogram().expect("the bounds are in range"),
            flows_ns: histogram().expect("the bounds are in range"),
            egresses: links.map(|link| Some((link?, Egress::default()))).collect(),
            leads_to_endpoint: topology
                .links()
                .map(|link| matches!(link.to.node, Vertex::Host(host) if host.0 < endpoints))
                .collect(),
            leads_from_host: topology
                .links()
                .map(|link| matches!(link.from.node, Vertex::Host(_)))
                .collect(),
            control: Control::default(),
            grant_checker: GrantChecker::default(),
            slots: vec![0; topology.links().count()],
            setup,
            topology,
        }
    }

    /// Returns the arbiters, the initial primary first.
    fn arbiters(&self, arbitration: Arbitration) -> Vec<ProcessId> {
        let hosts = self.topology.hosts();
        (0..arbitration.arbiters).map(|nth| ProcessId(hosts - 1 - nth)).collect()
    }

    fn client(
        &self,
        arbitration: Arbitration,
        host: ProcessId,
        incarnation: Incarnation,
    ) -> Client {
        let arbiters = self.arbiters(arbitration);
        let config = ClientConfig {
            arbiters: arbiters.clone(),
            incarnation,
            control_interval_ns: u64::from(arbitration.control_interval_slots)
                * self.setup.slot_ns(),
            frame_len_max: FRAME_LEN_MAX,
            labels: fabric_of(&self.topology, arbitration.endpoints).1,
            ..ClientConfig::new(host, arbitration.endpoints, arbiters[0], self.setup.slot_ns())
        };
        Client::new(config).expect("the settings are in range")
    }

    fn arbiter(
        &self,
        arbitration: Arbitration,
        host: ProcessId,
        incarnation: Incarnation,
    ) -> Arbiter {
        let all = self.arbiters(arbitration);
        let role = if host == all[0] { Role::Primary } else { Role::Secondary };
        let peers = all.into_iter().filter(|one| *one != host).collect();
        let nodes = arbitration.endpoints;
        let Arbitration { batch_slots, share_slots, lead_ns, coalesces_grants, .. } = arbitration;
        let config = ArbiterConfig::new(host, Core::racks(nodes, nodes, 1), self.setup.slot_ns());
        let config = ArbiterConfig {
            core: fabric_of(&self.topology, nodes).0,
            comm: CommConfig { incarnation, coalesces_grants, ..config.comm },
            allocator: Config { batch_slots, share_slots, ..config.allocator },
            lead_ns,
            failover: FailoverConfig { role, peers, ..FailoverConfig::ALONE },
            ..config
        };
        Arbiter::new(config).expect("the settings are in range")
    }

    /// Offers a host's frames for the next timeslots.
    fn offer(&mut self, offer: OfferedLoad, host: u32, raw: &mut RawTraffic) {
        let endpoints = self.endpoints();
        for _ in 0..OFFER_SLOTS {
            if !self.random.happens(1_000 * offer.load_permille) {
                continue;
            }
            // Hosts of the same group are not sent to.
            let group = offer.group_hosts;
            let others = (endpoints - group).min(offer.peers);
            let drawn = self.random.below(u64::from(others)) as u32;
            let to = (host / group * group + group + drawn) % endpoints;
            raw.offer(ProcessId(to), 1);
        }
    }

    fn endpoints(&self) -> u32 {
        let all = self.topology.hosts();
        self.setup.arbitration.map_or(all, |arbitration| arbitration.endpoints)
    }

    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Resets the measurements.
    pub fn begin(&mut self) {
        self.pongs_ns.reset();
        self.flows_ns.reset();
        self.egresses.iter_mut().flatten().for_each(|(_, egress)| egress.begin());
    }
}

impl Application<Node> for Workload {
    fn build(&mut self, node: NodeId, incarnation: u32) -> Node {
        let incarnation = Incarnation(1 + incarnation);
        let vertex = self.topology.nodes().nth(node.index()).expect("a node of the topology");
        let ports = self.topology.ports(vertex);
        if let Vertex::Switch(_) = vertex {
            let (route, tier) = (self.topology.route(vertex), self.topology.tier(vertex));
            return Node::Switch(Forwarder::new(route, ports, tier, node.0));
        }
        let (host, card) = (ProcessId(node.0), Port(ports.total() - 1));
        let config = TcpConfig {
            congestion_control: self.setup.congestion_control,
            segment_len: self.setup.segment_len(),
            ..TcpConfig::new(host, card)
        };
        let Some(arbitration) = self.setup.arbitration else {
            return Node::Host(HostTraffic::new(config).expect("the defaults are in range"));
        };
        if node.0 < arbitration.endpoints {
            let client = self.client(arbitration, host, incarnation);
            let traffic = HostTraffic::new(config).expect("the defaults are in range");
            let gated = Gated::new(traffic, client, card);
            let seed = (self.setup.seed << 32) | u64::from(node.0);
            return Node::Gated(Box::new(gated.late_by(self.setup.jitter_ns_max, seed)));
        }
        let arbiter = self.arbiter(arbitration, host, incarnation);
        Node::Arbiter(Box::new(ArbiterHost { arbiter, card }))
    }

    fn on_start(&mut self, mut at: NodeContext<'_>, _machine: &mut Node) {
        let is_here = |host: u32| host == at.node.0;
        let (mut alarms, now_ns) = (Vec::new(), at.instant.as_ns());
        for (token, flow) in (0u32..).zip(&self.setup.flows) {
            if is_here(flow.spec.from) {
                alarms.push((flow.spec.at_ns, token));
                alarms.extend(flow.closes_ns.map(|closes_ns| (closes_ns, CLOSING + token)));
            }
        }
        for (token, ping) in (PINGING..).zip(&self.setup.pings) {
            if is_here(ping.from) {
                alarms.push((now_ns, token));
            }
        }
        if self.setup.offer.is_some() && at.node.0 < self.endpoints() {
            alarms.push((now_ns, OFFERING));
        }
        for (at_ns, token) in alarms {
            at.alarm(at_ns.saturating_sub(now_ns) * NANOSECOND, token);
        }
    }

    fn on_event(&mut self, _at: NodeContext<'_>, _machine: &mut Node, event: HostEvent) {
        match event {
            HostEvent::Pong(pong) => self.pongs_ns.saturating_record(pong.ns),
            HostEvent::Flow(onepipe_sim_traffic::Event::Done { ns, .. }) => {
                self.flows_ns.saturating_record(ns);
            }
        }
    }

    fn on_drained(&mut self, _at: NodeContext<'_>, _machine: &mut Node) {}

    fn on_alarm(&mut self, mut at: NodeContext<'_>, machine: &mut Node, token: u32) {
        let Some(traffic) = machine.traffic_mut() else { return };
        if token == OFFERING {
            let now_ns = at.instant.as_ns();
            if let Some(offer) = self.setup.offer.filter(|offer| now_ns < offer.until_ns) {
                self.offer(offer, at.node.0, &mut traffic.raw);
                at.alarm(OFFER_SLOTS * self.setup.slot_ns() * NANOSECOND, OFFERING);
            }
        } else if let Some(pinging) = token.checked_sub(PINGING) {
            let ping = self.setup.pings[pinging as usize];
            traffic.pinger.ping(at.now, ProcessId(ping.to), ping.every_ns);
        } else if let Some(closing) = token.checked_sub(CLOSING) {
            if let Some(flow) = self.opened[closing as usize] {
                traffic.stack.close(at.now, flow);
            }
        } else {
            let spec = self.setup.flows[token as usize].spec;
            let flow = traffic.stack.open(at.now, ProcessId(spec.to), spec.bytes);
            self.opened[token as usize] = Some(flow);
        }
    }

    fn on_crash(&mut self, _instant: Instant, _node: NodeId) {}

    fn on_departure(&mut self, instant: Instant, link: LinkId, frame: &[u8]) {
        let is_in_slot = is_in_slot(frame);
        self.slots[link.index()] += u64::from(is_in_slot);
        let is_seen = is_in_slot || !self.setup.prioritizes_slots;
        if let Some((config, egress)) =
            &mut self.egresses[link.index()].as_mut().filter(|_| is_seen)
        {
            egress.on_frame(instant, config, frame);
        }
        if self.leads_from_host[link.index()] {
            self.control.observe(frame, self.endpoints());
        }
        if self.setup.checks_grants && self.leads_to_endpoint[link.index()] {
            self.grant_checker.observe(frame);
        }
    }
}
