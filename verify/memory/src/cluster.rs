//! A cluster in virtual time.

use onepipe_base::{Port, ProcessId};
use onepipe_memory::MemoryOwner;
use onepipe_sim_engine::NANOSECOND;
use onepipe_sim_network::{Fault, LinkFaults, LinkId, Network, NodeId};
use onepipe_table::TableClient;
use onepipe_topology::Topology;
use onepipe_verify_transactions::{Node, Process, Sent};

use crate::application::Servers;
use crate::load::Load;
use crate::setup::Setup;

/// Owners and clients in a simulated fabric of the real endpoints, switches and controller.
#[derive(Debug)]
pub struct Cluster<L> {
    network: Network<Node, Servers<L>>,
}

impl<L: Load> Cluster<L> {
    /// Builds the cluster and starts it.
    ///
    /// # Panics
    /// The processes do not fit the fabric, or leave a host partly filled.
    pub fn new(setup: Setup, load: L) -> Self {
        let (shape, per_host) = (setup.plan.shape, setup.plan.processes_per_host);
        let topology = Topology::new(shape, per_host).expect("the plan's processes fit the shape");
        let controllers = setup.plan.control_plane.as_ref().map_or(0, |plan| plan.replicas);
        assert!(controllers <= 1, "a cluster has at most one controller");
        let hosts = topology.hosts() - controllers;
        assert!(
            setup.processes <= hosts * u32::from(per_host)
                && setup.processes.is_multiple_of(per_host.into()),
            "{} processes exceed {hosts} hosts with {per_host} each, or leave a host partly filled",
            setup.processes
        );
        let (config, seed) = (setup.plan.network.clone(), setup.plan.seed);
        let servers = Servers::new(setup, topology.clone(), load);
        Self { network: Network::new(topology, config, seed, servers) }
    }

    /// Runs for `ns` ns of virtual time.
    pub fn run_ns(&mut self, ns: u64) {
        self.network.run_for(ns * NANOSECOND);
    }

    /// Returns virtual time in ns.
    pub fn now_ns(&self) -> u64 {
        self.network.now().as_ns()
    }

    /// Returns the load.
    pub fn load(&self) -> &L {
        &self.network.application.load
    }

    /// Returns the load for changes. Terminals that wait or have ended are asked again after
    /// [`Cluster::wake`].
    pub fn load_mut(&mut self) -> &mut L {
        &mut self.network.application.load
    }

    /// Returns the setup.
    pub fn setup(&self) -> &Setup {
        &self.network.application.setup
    }

    /// Returns the digest of the run so far.
    pub fn trace_hash(&self) -> u64 {
        self.network.trace_hash()
    }

    /// Whether the run has reached its limit of steps.
    pub fn is_out_of_steps(&self) -> bool {
        self.network.is_out_of_steps()
    }

    /// Returns the number of hosts.
    pub fn hosts(&self) -> u32 {
        self.network.topology().hosts()
    }

    /// Returns the number of nodes: hosts and then switches.
    pub fn nodes(&self) -> u32 {
        self.network.nodes()
    }

    /// Returns the owner of a process, if it runs and has one.
    pub fn owner(&self, process: ProcessId) -> Option<&MemoryOwner> {
        self.network.application.servers.get(process.index())?.as_ref()?.owner.as_ref()
    }

    /// Returns the client of a process, if it runs and has one.
    pub fn client(&self, process: ProcessId) -> Option<&TableClient> {
        self.network.application.servers.get(process.index())?.as_ref()?.client.as_ref()
    }

    /// Returns a process, if it runs.
    pub fn process(&self, process: ProcessId) -> Option<&Process> {
        let (node, port) = self.location(process);
        self.network.machine(node)?.process(port)
    }

    /// Returns what a process has sent since it started; nothing if it does not run.
    pub fn sent(&self, process: ProcessId) -> Sent {
        self.process(process).map(Process::sent).unwrap_or_default()
    }

    /// Returns the number of calls in flight.
    pub fn in_flight(&self) -> usize {
        let servers = self.network.application.servers.iter().flatten();
        servers.map(|server| server.terminals.in_flight()).sum()
    }

    /// Asks all terminals without a call what they do next.
    pub fn wake(&mut self) {
        for host in 0..self.hosts() {
            let first = self.network.topology().processes_of(onepipe_base::HostId(host)).start;
            self.network.command(NodeId(host), |_, machine, servers| {
                let Node::Host(_) = machine else { return };
                let count = usize::from(servers.setup.plan.processes_per_host);
                let servers = servers.servers.iter_mut().skip(first as usize).take(count);
                servers.flatten().for_each(|server| server.wake());
            });
        }
    }

    /// Crashes a process; its host keeps running.
    pub fn crash(&mut self, process: ProcessId) {
        let (node, port) = self.location(process);
        self.network.command(node, |_, machine, servers| {
            if let Node::Host(host) = machine {
                host.stop(port);
                servers.servers[process.index()] = None;
            }
        });
    }

    /// Restarts a process that has ended, if its host runs: with a client of a new session, and
    /// without an owner.
    pub fn restart(&mut self, process: ProcessId) {
        let (node, port) = self.location(process);
        self.network.command(node, |mut at, machine, servers| {
            if let Node::Host(host) = machine
                && host.process(port).is_none()
            {
                host.start(port, servers.build_process(process.0));
                at.alarm(0, u32::from(port.0));
            }
        });
    }

    /// Injects a fault now.
    pub fn inject(&mut self, fault: Fault) {
        self.network.inject(fault);
    }

    /// Replaces the fault settings of every link.
    pub fn set_link_faults(&mut self, faults: LinkFaults) {
        let links: Vec<LinkId> = self.network.links().map(|(link, ..)| link).collect();
        links.into_iter().for_each(|link| self.inject(Fault::SetLinkFaults(link, faults)));
    }

    fn location(&self, process: ProcessId) -> (NodeId, Port) {
        let topology = self.network.topology();
        let host = topology.host_of(process);
        (NodeId(host.0), Port((process.0 - topology.processes_of(host).start) as u16))
    }
}
