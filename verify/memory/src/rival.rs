//! A cluster of a rival in virtual time: plain datagrams through switches that only forward.

use onepipe_base::{HostId, Mono, Port, ProcessId, SwitchId, Timestamp};
use onepipe_memory::{MemoryOwner, RegionId, Request};
use onepipe_node::Host;
use onepipe_sim_engine::{Instant, NANOSECOND};
use onepipe_sim_network::{Application, LinkId, Network, NodeContext, NodeId};
use onepipe_sim_traffic::Forwarder;
use onepipe_table::{Leader, RivalClient, RivalOptions};
use onepipe_topology::{Node as Vertex, Topology};
use onepipe_verify_transactions::{RivalNode, RivalProcess, Sent};

use crate::load::{Command, Load};
use crate::setup::Setup;
use crate::terminals::Terminals;

/// The replica or the client of a process.
#[derive(Debug)]
struct RivalServer {
    /// Memory without an order: it executes operations as they arrive, and its own count of them
    /// is their timestamp.
    owner: Option<(MemoryOwner, u64)>,
    leader: Option<(u16, Leader)>,
    client: Option<RivalClient>,
    terminals: Terminals,
    is_active: bool,
    alarm_at: Option<Instant>,
}

impl RivalServer {
    fn on_message(&mut self, now: Mono, from: ProcessId, payload: &[u8]) {
        self.is_active = true;
        match (&mut self.owner, &mut self.leader, &mut self.client) {
            (Some((owner, arrivals)), _, _) if Request::is_request(payload) => {
                *arrivals += 1;
                owner.on_message(true, Timestamp::from_ns(*arrivals), from, payload);
            }
            (Some((owner, _)), Some((shard, leader)), _) => {
                let region = owner.region_mut(RegionId((*shard).into()));
                let region = region.expect("the region of the program's shard");
                leader.on_message(now, from, payload, region.bytes_mut());
            }
            (_, _, Some(client)) => client.on_message(now, from, payload),
            _ => {}
        }
    }

    fn serve(
        &mut self,
        at: &mut NodeContext<'_>,
        (machine, port): (&mut RivalNode, Port),
        load: &mut impl Load,
    ) {
        if !std::mem::take(&mut self.is_active) {
            return;
        }
        let now = at.now.mono;
        if let Some((_, leader)) = &mut self.leader {
            leader.handle_timeout(now);
        }
        if let Some(client) = &mut self.client {
            client.handle_timeout(now);
            while let Some(finished) = client.poll_finished() {
                self.terminals.on_finished(at.instant, finished, load);
            }
            self.terminals.run(at.instant, load, |key, command| match command {
                Command::LookUp => client.look_up(key),
                Command::Insert(value) => client.insert(now, key, &value),
                Command::Update(_) | Command::Delete => {
                    unreachable!("the load of a rival inserts and looks up")
                }
            });
        }
        if let Some(process) = machine.process_mut(port) {
            if let Some((owner, _)) = &mut self.owner {
                let replies = std::iter::from_fn(|| owner.poll_reply());
                replies.for_each(|reply| process.send(reply.to, reply.payload));
            }
            if let Some((_, leader)) = &mut self.leader {
                let messages = std::iter::from_fn(|| leader.poll_message());
                messages.for_each(|(to, payload)| process.send(to, payload));
            }
            if let Some(client) = &mut self.client {
                let messages = std::iter::from_fn(|| client.poll_message(now));
                messages.for_each(|(to, payload)| process.send(to, payload));
            }
        }
        self.set_alarm(at, port);
    }

    fn set_alarm(&mut self, at: &mut NodeContext<'_>, port: Port) {
        let of_leader = self.leader.as_ref().and_then(|(_, leader)| leader.poll_timeout());
        let of_client = self.client.as_ref().and_then(RivalClient::poll_timeout);
        let deadline = Mono::earlier(of_client, of_leader).map(|deadline| {
            let wait_ns = deadline.as_ns().saturating_sub(at.now.mono.as_ns());
            at.instant.after(wait_ns.max(1) * NANOSECOND)
        });
        let Some(next) = self.terminals.next_at().into_iter().chain(deadline).min() else { return };
        if self.alarm_at.is_none_or(|alarm_at| next < alarm_at) {
            self.alarm_at = Some(next);
            at.alarm(next.since(at.instant), u32::from(port.0));
        }
    }
}

/// The servers of all processes, and the load.
#[derive(Debug)]
struct RivalApp<L> {
    setup: Setup,
    options: RivalOptions,
    load: L,
    topology: Topology,
    servers: Vec<Option<RivalServer>>,
}

impl<L: Load> RivalApp<L> {
    fn forwarder(&self, vertex: Vertex, index: u32) -> Forwarder {
        let topology = &self.topology;
        let (route, ports) = (topology.route(vertex), topology.ports(vertex));
        Forwarder::new(route, ports, topology.tier(vertex), index)
    }

    fn build_process(&mut self, id: u32) -> RivalProcess {
        let (process, setup) = (ProcessId(id), &self.setup);
        let owned = setup.owner(process, &mut self.load);
        let leader = owned.as_ref().filter(|_| self.options.asks_leader).map(|(_, used)| {
            let (shard, nodes) = used[0];
            let replicas = &setup.replicas[usize::from(shard)];
            let timeout_ns = self.options.timeout_ns;
            (shard, Leader::new(setup.layout, (shard, nodes), process, replicas, timeout_ns))
        });
        let is_client = setup.clients.contains(&id);
        let client = is_client.then(|| {
            let leaders = setup.replicas.iter().map(|replicas| replicas[0]).collect();
            RivalClient::new(1, setup.layout, leaders, self.options)
        });
        let terminals = Terminals::new(process, 1, if is_client { setup.terminals } else { 0 });
        self.servers[id as usize] = Some(RivalServer {
            owner: owned.map(|(owner, _)| (owner, 0)),
            leader,
            client,
            terminals,
            is_active: true,
            alarm_at: None,
        });
        RivalProcess::new(process, setup.message_ns)
    }

    fn server(&mut self, node: NodeId, port: Port) -> Option<&mut RivalServer> {
        let first = self.topology.processes_of(HostId(node.0)).start;
        self.servers.get_mut((first + u32::from(port.0)) as usize)?.as_mut()
    }
}

impl<L: Load> Application<RivalNode> for RivalApp<L> {
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
            (server.alarm_at, server.is_active) = (None, true);
        }
    }

    fn on_crash(&mut self, _: Instant, _: NodeId) {}

    fn on_departure(&mut self, _: Instant, _: LinkId, _: &[u8]) {}
}

/// Replicas and clients of a rival in the simulated network.
#[derive(Debug)]
pub(crate) struct RivalCluster<L: Load> {
    network: Network<RivalNode, RivalApp<L>>,
}

impl<L: Load> RivalCluster<L> {
    /// Builds the cluster and starts it.
    pub fn new(setup: Setup, options: RivalOptions, load: L) -> Self {
        let (shape, per_host) = (setup.plan.shape, setup.plan.processes_per_host);
        let topology = Topology::new(shape, per_host).expect("the plan's processes fit the shape");
        assert!(setup.plan.control_plane.is_none(), "rivals have no controller");
        let (config, seed) = (setup.plan.network.clone(), setup.plan.seed);
        let servers = (0..setup.processes).map(|_| None).collect();
        let app = RivalApp { servers, topology: topology.clone(), setup, options, load };
        Self { network: Network::new(topology, config, seed, app) }
    }

    pub fn run_ns(&mut self, ns: u64) {
        self.network.run_for(ns * NANOSECOND);
    }

    pub fn load_mut(&mut self) -> &mut L {
        &mut self.network.application.load
    }

    /// Returns what a process has sent.
    pub fn sent(&self, process: ProcessId) -> Sent {
        let topology = self.network.topology();
        let host = topology.host_of(process);
        let port = Port((process.0 - topology.processes_of(host).start) as u16);
        let machine = self.network.machine(NodeId(host.0));
        machine.and_then(|node| node.process(port)).map(RivalProcess::sent).unwrap_or_default()
    }

    /// Returns the number of calls in flight.
    pub fn in_flight(&self) -> usize {
        let servers = self.network.application.servers.iter().flatten();
        servers.map(|server| server.terminals.in_flight()).sum()
    }

    /// Returns the memory of a process.
    pub fn owner(&self, process: ProcessId) -> Option<&MemoryOwner> {
        let server = self.network.application.servers.get(process.index())?.as_ref()?;
        server.owner.as_ref().map(|(owner, _)| owner)
    }
}
