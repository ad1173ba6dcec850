//! The simulated fabric with a server over the endpoint of each process.

mod nodes;

use onepipe_base::{HostId, Mono, Port, ProcessId, Timestamp};
use onepipe_endpoint::{Endpoint, Event};
use onepipe_sim_engine::{Instant, NANOSECOND};
use onepipe_sim_network::{
    Fault, HopKind, LinkFaults, LinkId, Network, NodeContext, NodeId, Stats,
};
use onepipe_sim_scenarios::Plan;
use onepipe_sim_traffic::CpuTimes;
use onepipe_topology::Topology;

use crate::node::{Node, Process};
use crate::usage::Sent;
use nodes::Nodes;

/// The fabric and the processes of an [`Environment`].
#[derive(Clone, Copy, Debug)]
pub struct FabricSetup<'a> {
    /// Fabric, endpoints, switches, the seed, and at most one controller, on the last host.
    pub plan: &'a Plan,
    /// Number of processes, a multiple of those on a host.
    pub processes: u32,
    /// CPU times of a process.
    pub cpu: CpuTimes,
    /// CPU time of the controller for each process that it contacts, in ns: half for a frame that
    /// it sends and half for one that it receives. Beacons, Hello frames and announcements
    /// cost nothing.
    pub contact_ns: u64,
}

/// What the processes of an [`Environment`] run over their endpoints. One value serves all of them.
pub trait Program {
    /// What one process runs.
    type Server: ProcessServer;

    /// Returns the fabric and the processes, which must not change.
    fn fabric(&self) -> FabricSetup<'_>;

    /// Builds the server of an incarnation of a process; the first one is 1. Nothing is left of
    /// previous ones.
    fn build_server(&mut self, process: ProcessId, incarnation: u32) -> Self::Server;

    /// Does what is due at a server after all events were handled. `drained` is the commit barrier
    /// below which the endpoint has handed out everything.
    fn serve(
        &mut self,
        server: &mut Self::Server,
        at: &mut NodeContext<'_>,
        endpoint: (&mut Node, Port),
        drained: Option<Timestamp>,
    );
}

/// What a process runs over its endpoint.
pub trait ProcessServer {
    /// Handles an event of the endpoint. Returns false if the process has to end.
    fn on_event(&mut self, now: Mono, endpoint: &mut Endpoint, event: Event) -> bool;

    /// Notes that an alarm has fired.
    fn on_alarm(&mut self);

    /// Asks all terminals that have ended or wait what they do next.
    fn wake(&mut self);

    /// Returns the number of calls in flight.
    fn in_flight(&self) -> usize;
}

/// Processes in a simulated fabric of the real endpoints, switches and controller.
pub struct Environment<P: Program> {
    network: Network<Node, Nodes<P>>,
}

impl<P: Program> Environment<P> {
    /// Builds the nodes and starts them.
    ///
    /// # Panics
    /// The processes do not fit the fabric, or leave a host partly filled.
    pub fn new(program: P) -> Self {
        let FabricSetup { plan, processes, .. } = program.fabric();
        let (shape, per_host) = (plan.shape, plan.processes_per_host);
        let topology = Topology::new(shape, per_host).expect("the plan's processes fit the shape");
        let controllers = plan.control_plane.as_ref().map_or(0, |plan| plan.replicas);
        assert!(controllers <= 1, "a cluster has at most one controller");
        let hosts = topology.hosts() - controllers;
        assert!(
            processes <= hosts * u32::from(per_host) && processes.is_multiple_of(per_host.into()),
            "{processes} processes exceed {hosts} hosts with {per_host} each, or leave a host partly \
             filled"
        );
        let (config, seed) = (plan.network.clone(), plan.seed);
        let nodes = Nodes::new(program, topology.clone());
        Self { network: Network::new(topology, config, seed, nodes) }
    }

    /// Runs for `ns` ns of virtual time.
    pub fn run_ns(&mut self, ns: u64) {
        self.network.run_for(ns * NANOSECOND);
    }

    /// Returns virtual time in ns.
    pub fn now_ns(&self) -> u64 {
        self.network.now().as_ns()
    }

    /// Returns the program.
    pub fn program(&self) -> &P {
        &self.network.application.program
    }

    /// Returns the program for changes. Terminals that wait or have ended are asked again after
    /// [`Environment::wake`].
    pub fn program_mut(&mut self) -> &mut P {
        &mut self.network.application.program
    }

    /// Returns the server of a process, if it runs.
    pub fn server(&self, process: ProcessId) -> Option<&P::Server> {
        self.network.application.servers.get(process.index())?.as_ref()
    }

    /// Returns the servers of all processes that run.
    pub fn servers(&self) -> impl Iterator<Item = &P::Server> {
        self.network.application.servers.iter().flatten()
    }

    /// Returns the digest of the run so far.
    pub fn trace_hash(&self) -> u64 {
        self.network.trace_hash()
    }

    /// Whether the run has reached its limit of steps.
    pub fn is_out_of_steps(&self) -> bool {
        self.network.is_out_of_steps()
    }

    /// Returns the counters of the network.
    pub fn network_stats(&self) -> &Stats {
        self.network.stats()
    }

    /// Returns the number of hosts.
    pub fn hosts(&self) -> u32 {
        self.network.topology().hosts()
    }

    /// Returns the number of nodes: hosts and then switches.
    pub fn nodes(&self) -> u32 {
        self.network.nodes()
    }

    /// Returns a process, if it runs.
    pub fn process(&self, process: ProcessId) -> Option<&Process> {
        let (node, port) = self.location(process);
        self.network.machine(node)?.host()?.process(port)
    }

    /// Returns what a process has sent since it started; nothing if it does not run.
    pub fn sent(&self, process: ProcessId) -> Sent {
        self.process(process).map(Process::sent).unwrap_or_default()
    }

    /// Returns the bytes that have entered each link from or to a host.
    pub fn host_link_bytes(&self) -> Vec<[u64; HopKind::ALL.len()]> {
        let is_of_host = |node: NodeId| node.0 < self.hosts();
        let links = self.network.links();
        let links = links.filter(|(_, from, to)| is_of_host(*from) || is_of_host(*to));
        links.map(|(link, ..)| self.network.application.links.of(link)).collect()
    }

    /// Returns the number of calls in flight.
    pub fn in_flight(&self) -> usize {
        self.servers().map(ProcessServer::in_flight).sum()
    }

    /// Asks all terminals without a call what they do next.
    pub fn wake(&mut self) {
        for host in 0..self.hosts() {
            let first = self.network.topology().processes_of(HostId(host)).start;
            self.network.command(NodeId(host), |_, machine, nodes| {
                let Node::Host(_) = machine else { return };
                let count = usize::from(nodes.program.fabric().plan.processes_per_host);
                let servers = nodes.servers.iter_mut().skip(first as usize).take(count);
                servers.flatten().for_each(|server| server.wake());
            });
        }
    }

    /// Crashes a process; its host keeps running.
    pub fn crash(&mut self, process: ProcessId) {
        let (node, port) = self.location(process);
        self.network.command(node, |_, machine, nodes| {
            if let Node::Host(host) = machine {
                host.stop(port);
                nodes.servers[process.index()] = None;
            }
        });
    }

    /// Restarts a process that has ended, if its host runs.
    pub fn restart(&mut self, process: ProcessId) {
        let (node, port) = self.location(process);
        self.network.command(node, |mut at, machine, nodes| {
            if let Node::Host(host) = machine
                && host.process(port).is_none()
            {
                host.start(port, nodes.build_process(process.0));
                at.alarm(0, u32::from(port.0));
            }
        });
    }

    /// Injects a fault now.
    pub fn inject(&mut self, fault: Fault) {
        self.network.inject(fault);
    }

    /// Schedules a fault, at a virtual time in ns.
    pub fn schedule(&mut self, at_ns: u64, fault: Fault) {
        self.network.schedule(Instant::from_ps(at_ns * NANOSECOND), fault);
    }

    /// Replaces the fault settings of every link.
    pub fn set_link_faults(&mut self, faults: LinkFaults) {
        let links: Vec<LinkId> = self.network.links().map(|(link, ..)| link).collect();
        links.into_iter().for_each(|link| self.inject(Fault::SetLinkFaults(link, faults)));
    }

    /// Lets each link that leads to a host lose this share of its frames, in parts per billion.
    pub fn lose_at_hosts(&mut self, loss_ppb: u32) {
        let hosts = self.hosts();
        let links = self.network.links().filter(|(.., to)| to.0 < hosts).map(|(link, ..)| link);
        let links: Vec<LinkId> = links.collect();
        let faults = LinkFaults { loss_ppb, ..LinkFaults::default() };
        links.into_iter().for_each(|link| self.inject(Fault::SetLinkFaults(link, faults)));
    }

    /// Cuts the link of a process' host, in both directions.
    pub fn cut_host(&mut self, process: ProcessId) {
        self.links_of(process).into_iter().for_each(|link| self.inject(Fault::Cut(link)));
    }

    /// Repairs the link of a process' host.
    pub fn repair_host(&mut self, process: ProcessId) {
        self.links_of(process).into_iter().for_each(|link| self.inject(Fault::Repair(link)));
    }

    fn links_of(&self, process: ProcessId) -> Vec<LinkId> {
        let (node, _) = self.location(process);
        let links = self.network.links().filter(|(_, from, to)| *from == node || *to == node);
        links.map(|(link, ..)| link).collect()
    }

    fn location(&self, process: ProcessId) -> (NodeId, Port) {
        let topology = self.network.topology();
        let host = topology.host_of(process);
        (NodeId(host.0), Port((process.0 - topology.processes_of(host).start) as u16))
    }
}
