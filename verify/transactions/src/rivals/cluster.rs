//! A cluster of a rival in virtual time.

use onepipe_base::{HostId, Port, ProcessId, SwitchId};
use onepipe_baselines::{Client, ClientOptions, Keyed, Protocol, Server};
use onepipe_node::Host;
use onepipe_sim_engine::{Instant, NANOSECOND};
use onepipe_sim_network::{
    Application, Fault, HopKind, LinkFaults, LinkId, Network, NodeContext, NodeId,
};
use onepipe_sim_traffic::Forwarder;
use onepipe_topology::{Node as Vertex, Topology};

use super::process::{RivalNode, RivalProcess};
use super::server::{RivalServer, SESSION};
use crate::load::Load;
use crate::measured::Measured;
use crate::setup::Setup;
use crate::usage::{LinkBytes, Sent};

/// The servers of all processes, and the load.
#[derive(Debug)]
struct RivalApp<S, L> {
    setup: Setup,
    protocol: Protocol,
    load: L,
    topology: Topology,
    servers: Vec<Option<RivalServer<S>>>,
    links: LinkBytes,
}

impl<S: Keyed, L: Load<S>> RivalApp<S, L> {
    fn forwarder(&self, vertex: Vertex, index: u32) -> Forwarder {
        let topology = &self.topology;
        let (route, ports) = (topology.route(vertex), topology.ports(vertex));
        Forwarder::new(route, ports, topology.tier(vertex), index)
    }

    fn build_process(&mut self, id: u32) -> RivalProcess {
        let process = ProcessId(id);
        let placement = &self.setup.placement;
        // Requests and log entries are sent again as the probes of the endpoints are.
        let timeout_min_ns = self.setup.plan.endpoint.probe_timeout_min_ns;
        let shard = placement.shard_of(process);
        let state = shard.map(|shard| self.load.state(shard));
        let replica =
            state.and_then(|state| Server::new(process, placement, state, timeout_min_ns));
        let client = self.setup.clients.contains(&id).then(|| {
            let options = ClientOptions { timeout_min_ns, ..self.setup.rival };
            Client::new((process, SESSION), placement.clone(), self.protocol, options)
        });
        self.servers[id as usize] =
            Some(RivalServer::new(process, replica, client, self.setup.terminals));
        RivalProcess::new(process, self.setup.message_ns)
    }

    fn server(&mut self, node: NodeId, port: Port) -> Option<&mut RivalServer<S>> {
        let first = self.topology.processes_of(HostId(node.0)).start;
        self.servers.get_mut((first + u32::from(port.0)) as usize)?.as_mut()
    }
}

impl<S: Keyed, L: Load<S>> Application<RivalNode> for RivalApp<S, L> {
    fn build(&mut self, node: NodeId, _: u32) -> RivalNode {
        let hosts = self.topology.hosts();
        if node.0 >= hosts {
            let vertex = Vertex::Switch(SwitchId(node.0 - hosts));
            return RivalNode::Switch(self.forwarder(vertex, node.0));
        }
        let ids = self.topology.processes_of(HostId(node.0));
        if ids.start >= self.setup.processes {
            return RivalNode::Idle;
        }
        let switch = self.forwarder(Vertex::Host(HostId(node.0)), node.0);
        RivalNode::Host(Host::new(switch, ids.map(|id| self.build_process(id)).collect()))
    }

    fn on_start(&mut self, mut at: NodeContext<'_>, machine: &mut RivalNode) {
        if let RivalNode::Host(_) = machine {
            for port in 0..self.topology.processes_per_host() {
                at.alarm(0, port.into());
            }
        }
    }

    fn on_event(
        &mut self,
        at: NodeContext<'_>,
        _: &mut RivalNode,
        (port, from, payload): (Port, ProcessId, Vec<u8>),
    ) {
        if let Some(server) = self.server(at.node, port) {
            server.on_message(at.now.mono, from, &payload);
        }
    }

    fn on_drained(&mut self, mut at: NodeContext<'_>, machine: &mut RivalNode) {
        let first = self.topology.processes_of(HostId(at.node.0)).start as usize;
        for port in 0..self.topology.processes_per_host() {
            if let Some(Some(server)) = self.servers.get_mut(first + usize::from(port)) {
                server.serve(&mut at, (machine, Port(port)), &mut self.load);
            }
        }
    }

    fn on_alarm(&mut self, at: NodeContext<'_>, _: &mut RivalNode, token: u32) {
        if let Some(server) = self.server(at.node, Port(token as u16)) {
            server.on_alarm();
        }
    }

    fn on_crash(&mut self, _: Instant, _: NodeId) {}

    fn on_departure(&mut self, _: Instant, link: LinkId, frame: &[u8]) {
        self.links.on_departure(link, frame);
    }
}

/// Replicas and clients of a rival in the simulated network, with switches that only forward.
#[derive(Debug)]
pub(crate) struct RivalCluster<S: Keyed, L: Load<S>> {
    network: Network<RivalNode, RivalApp<S, L>>,
}

impl<S: Keyed, L: Load<S>> RivalCluster<S, L> {
    /// Builds the cluster and starts it. Of the options of the setup's endpoints it uses the probe
    /// timeout alone, and of those of its clients their number and that of their terminals.
    ///
    /// # Panics
    /// The processes do not fit the fabric, or the setup has a controller.
    pub fn new(setup: Setup, protocol: Protocol, load: L) -> Self {
        let (shape, per_host) = (setup.plan.shape, setup.plan.processes_per_host);
        let topology = Topology::new(shape, per_host).expect("the plan's processes fit the shape");
        assert!(setup.plan.control_plane.is_none(), "rivals have no controller");
        let (config, seed) = (setup.plan.network.clone(), setup.plan.seed);
        let app = RivalApp {
            links: LinkBytes::new(config.host_link.overhead_bytes),
            servers: (0..setup.processes).map(|_| None).collect(),
            topology: topology.clone(),
            setup,
            protocol,
            load,
        };
        Self { network: Network::new(topology, config, seed, app) }
    }

    fn server(&self, process: ProcessId) -> Option<&RivalServer<S>> {
        self.network.application.servers.get(process.index())?.as_ref()
    }

    fn hosts(&self) -> u32 {
        self.network.topology().hosts()
    }
}

impl<S: Keyed, L: Load<S>> Measured for RivalCluster<S, L> {
    type State = S;
    type Load = L;

    fn run_ns(&mut self, ns: u64) {
        self.network.run_for(ns * NANOSECOND);
    }

    fn now_ns(&self) -> u64 {
        self.network.now().as_ns()
    }

    fn setup(&self) -> &Setup {
        &self.network.application.setup
    }

    fn load(&self) -> &L {
        &self.network.application.load
    }

    fn load_mut(&mut self) -> &mut L {
        &mut self.network.application.load
    }

    fn hops(&self) -> u64 {
        self.network.stats().hops
    }

    fn sent(&self, process: ProcessId) -> Sent {
        let topology = self.network.topology();
        let host = topology.host_of(process);
        let port = Port((process.0 - topology.processes_of(host).start) as u16);
        let machine = self.network.machine(NodeId(host.0));
        machine.and_then(|node| node.process(port)).map(RivalProcess::sent).unwrap_or_default()
    }

    fn host_link_bytes(&self) -> Vec<[u64; HopKind::ALL.len()]> {
        let is_of_host = |node: NodeId| node.0 < self.hosts();
        let links = self.network.links();
        let links = links.filter(|(_, from, to)| is_of_host(*from) || is_of_host(*to));
        links.map(|(link, ..)| self.network.application.links.of(link)).collect()
    }

    fn lose_at_hosts(&mut self, loss_ppb: u32) {
        let hosts = self.hosts();
        let links = self.network.links().filter(|(.., to)| to.0 < hosts).map(|(link, ..)| link);
        let links: Vec<LinkId> = links.collect();
        let faults = LinkFaults { loss_ppb, ..LinkFaults::default() };
        let faults = links.into_iter().map(|link| Fault::SetLinkFaults(link, faults));
        faults.for_each(|fault| self.network.inject(fault));
    }

    fn in_flight(&self) -> usize {
        let servers = self.network.application.servers.iter().flatten();
        servers.map(RivalServer::in_flight).sum()
    }

    fn state(&self, process: ProcessId) -> Option<&S> {
        self.server(process)?.replica.as_ref().map(Server::state)
    }

    fn violations(&self) -> Vec<String> {
        let mut violations = Vec::new();
        for (id, server) in self.network.application.servers.iter().flatten().enumerate() {
            let client = server.client.as_ref().map(Client::stats).unwrap_or_default();
            let replica = server.replica.as_ref().map(Server::stats).unwrap_or_default();
            if client.malformed + replica.malformed > 0 {
                violations.push(format!("process {id}: {client:?}, {replica:?}"));
            }
            let locked = server.replica.as_ref().map_or(0, Server::locked);
            if locked > 0 && self.in_flight() == 0 {
                violations.push(format!("process {id} holds {locked} locks at the end"));
            }
        }
        violations
    }
}
