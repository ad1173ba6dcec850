//! A cluster of a rival in virtual time.

use std::marker::PhantomData;

use onepipe_base::{Mono, Port, ProcessId};
use onepipe_baselines::{Client, ClientOptions, Keyed, Protocol, Server};
use onepipe_sim_network::{Fault, HopKind, LinkFaults, LinkId, NodeContext, NodeId};

use super::network::{RivalNetwork, RivalProgram};
use super::process::RivalNode;
use super::server::{RivalServer, SESSION};
use crate::load::Load;
use crate::measured::Measured;
use crate::setup::Setup;
use crate::usage::Sent;

/// The rival's protocol, and the load.
struct Transactions<S, L> {
    setup: Setup,
    protocol: Protocol,
    load: L,
    state: PhantomData<S>,
}

impl<S: Keyed, L: Load<S>> RivalProgram for Transactions<S, L> {
    type Server = RivalServer<S>;

    fn build(&mut self, process: ProcessId) -> RivalServer<S> {
        let placement = &self.setup.placement;
        // Requests and log entries are sent again as the probes of the endpoints are.
        let timeout_min_ns = self.setup.plan.endpoint.probe_timeout_min_ns;
        let shard = placement.shard_of(process);
        let state = shard.map(|shard| self.load.state(shard));
        let replica =
            state.and_then(|state| Server::new(process, placement, state, timeout_min_ns));
        let client = self.setup.clients.contains(&process.0).then(|| {
            let options = ClientOptions { timeout_min_ns, ..self.setup.rival };
            Client::new((process, SESSION), placement.clone(), self.protocol, options)
        });
        RivalServer::new(process, replica, client, self.setup.terminals)
    }

    fn on_message(server: &mut RivalServer<S>, now: Mono, from: ProcessId, payload: &[u8]) {
        server.on_message(now, from, payload);
    }

    fn on_alarm(server: &mut RivalServer<S>) {
        server.on_alarm();
    }

    fn serve(
        &mut self,
        server: &mut RivalServer<S>,
        at: &mut NodeContext<'_>,
        endpoint: (&mut RivalNode, Port),
    ) {
        server.serve(at, endpoint, &mut self.load);
    }
}

/// Replicas and clients of a rival in the simulated network, with switches that only forward.
pub(crate) struct RivalCluster<S: Keyed, L: Load<S>> {
    nodes: RivalNetwork<Transactions<S, L>>,
}

impl<S: Keyed, L: Load<S>> RivalCluster<S, L> {
    /// Builds the cluster and starts it. Of the options of the setup's endpoints it uses the probe
    /// timeout alone, and of those of its clients their number and that of their terminals.
    ///
    /// # Panics
    /// The processes do not fit the fabric, or the setup has a controller.
    pub fn new(setup: Setup, protocol: Protocol, load: L) -> Self {
        let (plan, processes, cpu) = (setup.plan.clone(), setup.processes, setup.cpu);
        let program = Transactions { setup, protocol, load, state: PhantomData };
        Self { nodes: RivalNetwork::new(&plan, processes, cpu, program) }
    }

    fn hosts(&self) -> u32 {
        self.nodes.network.topology().hosts()
    }
}

impl<S: Keyed, L: Load<S>> Measured for RivalCluster<S, L> {
    type State = S;
    type Load = L;

    fn run_ns(&mut self, ns: u64) {
        self.nodes.run_ns(ns);
    }

    fn now_ns(&self) -> u64 {
        self.nodes.network.now().as_ns()
    }

    fn setup(&self) -> &Setup {
        &self.nodes.program().setup
    }

    fn load(&self) -> &L {
        &self.nodes.program().load
    }

    fn load_mut(&mut self) -> &mut L {
        &mut self.nodes.program_mut().load
    }

    fn hops(&self) -> u64 {
        self.nodes.network.stats().hops
    }

    fn sent(&self, process: ProcessId) -> Sent {
        self.nodes.sent(process)
    }

    fn host_link_bytes(&self) -> Vec<[u64; HopKind::ALL.len()]> {
        let is_of_host = |node: NodeId| node.0 < self.hosts();
        let links = self.nodes.network.links();
        let links = links.filter(|(_, from, to)| is_of_host(*from) || is_of_host(*to));
        links.map(|(link, ..)| self.nodes.network.application.links.of(link)).collect()
    }

    fn lose_at_hosts(&mut self, loss_ppb: u32) {
        let hosts = self.hosts();
        let links =
            self.nodes.network.links().filter(|(.., to)| to.0 < hosts).map(|(link, ..)| link);
        let links: Vec<LinkId> = links.collect();
        let faults = LinkFaults { loss_ppb, ..LinkFaults::default() };
        let faults = links.into_iter().map(|link| Fault::SetLinkFaults(link, faults));
        faults.for_each(|fault| self.nodes.network.inject(fault));
    }

    fn in_flight(&self) -> usize {
        self.nodes.servers().map(RivalServer::in_flight).sum()
    }

    fn state(&self, process: ProcessId) -> Option<&S> {
        self.nodes.server(process)?.replica.as_ref().map(Server::state)
    }

    fn violations(&self) -> Vec<String> {
        let mut violations = Vec::new();
        for (id, server) in self.nodes.servers().enumerate() {
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
