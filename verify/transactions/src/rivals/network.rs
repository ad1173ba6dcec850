//! The processes of a rival in the simulated network, with switches that only forward.

use onepipe_base::{HostId, Mono, Port, ProcessId, SwitchId};
use onepipe_node::{Host, HostEvent};
use onepipe_sim_engine::{Instant, NANOSECOND};
use onepipe_sim_network::{Application, FabricEvent, LinkId, Network, NodeContext, NodeId};
use onepipe_sim_scenarios::Plan;
use onepipe_sim_traffic::{CpuTimes, Forwarder};
use onepipe_topology::{Node as Vertex, Topology};

use super::process::{RivalNode, RivalProcess};
use crate::usage::{LinkBytes, Sent};

/// What the processes of a rival do, and the load.
pub trait RivalProgram {
    /// The replica and the client of a process.
    type Server;

    /// Creates the server of a process.
    fn build(&mut self, process: ProcessId) -> Self::Server;

    /// Handles a message to a process.
    fn on_message(server: &mut Self::Server, now: Mono, from: ProcessId, payload: &[u8]);

    /// Notes that the alarm of a process has fired.
    fn on_alarm(server: &mut Self::Server);

    /// Does what is due after all messages were handled.
    fn serve(
        &mut self,
        server: &mut Self::Server,
        at: &mut NodeContext<'_>,
        endpoint: (&mut RivalNode, Port),
    );
}

/// The nodes of the network.
pub(super) struct RivalNodes<P: RivalProgram> {
    program: P,
    /// CPU times of a process.
    cpu: CpuTimes,
    topology: Topology,
    /// The servers of the processes; `None` before their hosts have started.
    servers: Vec<Option<P::Server>>,
    pub(super) links: LinkBytes,
}

impl<P: RivalProgram> RivalNodes<P> {
    fn forwarder(&self, vertex: Vertex, index: u32) -> Forwarder {
        let topology = &self.topology;
        let (route, ports) = (topology.route(vertex), topology.ports(vertex));
        Forwarder::new(route, ports, topology.tier(vertex), index)
    }

    fn build_process(&mut self, id: u32) -> RivalProcess {
        self.servers[id as usize] = Some(self.program.build(ProcessId(id)));
        RivalProcess::new(ProcessId(id), self.cpu)
    }

    fn server(&mut self, node: NodeId, port: Port) -> Option<&mut P::Server> {
        let first = self.topology.processes_of(HostId(node.0)).start;
        self.servers.get_mut((first + u32::from(port.0)) as usize)?.as_mut()
    }
}

impl<P: RivalProgram> Application<RivalNode> for RivalNodes<P> {
    fn build(&mut self, node: NodeId, _: u32) -> RivalNode {
        let hosts = self.topology.hosts();
        if node.0 >= hosts {
            let vertex = Vertex::Switch(SwitchId(node.0 - hosts));
            return RivalNode::Switch(self.forwarder(vertex, node.0));
        }
        let ids = self.topology.processes_of(HostId(node.0));
        if ids.start as usize >= self.servers.len() {
            return RivalNode::Idle;
        }
        let switch = self.forwarder(Vertex::Host(HostId(node.0)), node.0);
        RivalNode::Host(Host::new(switch, ids.map(|id| self.build_process(id)).collect()))
    }

    fn on_start(&mut self, mut at: NodeContext<'_>, machine: &mut RivalNode) {
        if machine.host().is_some() {
            for port in 0..self.topology.processes_per_host() {
                at.alarm(0, port.into());
            }
        }
    }

    fn on_event(
        &mut self,
        at: NodeContext<'_>,
        _: &mut RivalNode,
        event: <RivalNode as onepipe_base::Machine>::Event,
    ) {
        if let FabricEvent::Host(HostEvent::Process(port, (from, payload))) = event
            && let Some(server) = self.server(at.node, port)
        {
            P::on_message(server, at.now.mono, from, &payload);
        }
    }

    fn on_drained(&mut self, mut at: NodeContext<'_>, machine: &mut RivalNode) {
        let first = self.topology.processes_of(HostId(at.node.0)).start as usize;
        for port in 0..self.topology.processes_per_host() {
            if let Some(Some(server)) = self.servers.get_mut(first + usize::from(port)) {
                self.program.serve(server, &mut at, (machine, Port(port)));
            }
        }
    }

    fn on_alarm(&mut self, at: NodeContext<'_>, _: &mut RivalNode, token: u32) {
        if let Some(server) = self.server(at.node, Port(token as u16)) {
            P::on_alarm(server);
        }
    }

    fn on_crash(&mut self, _: Instant, _: NodeId) {}

    fn on_departure(&mut self, _: Instant, link: LinkId, frame: &[u8]) {
        self.links.on_departure(link, frame);
    }
}

/// The processes of a rival, with plain datagrams.
pub struct RivalNetwork<P: RivalProgram> {
    pub(super) network: Network<RivalNode, RivalNodes<P>>,
}

impl<P: RivalProgram> RivalNetwork<P> {
    /// Builds the network of a plan and starts it. Each process has the CPU times `cpu`.
    ///
    /// # Panics
    /// The processes do not fit the fabric, or the plan has a controller.
    pub fn new(plan: &Plan, processes: u32, cpu: CpuTimes, program: P) -> Self {
        let topology = Topology::new(plan.shape, plan.processes_per_host);
        let topology = topology.expect("the plan's processes fit the shape");
        assert!(plan.control_plane.is_none(), "rivals have no controller");
        let nodes = RivalNodes {
            program,
            cpu,
            topology: topology.clone(),
            servers: (0..processes).map(|_| None).collect(),
            links: LinkBytes::new(plan.network.host_link.overhead_bytes),
        };
        Self { network: Network::new(topology, plan.network.clone(), plan.seed, nodes) }
    }

    /// Lets virtual time pass.
    pub fn run_ns(&mut self, ns: u64) {
        self.network.run_for(ns * NANOSECOND);
    }

    /// Returns the program.
    pub fn program(&self) -> &P {
        &self.network.application.program
    }

    /// Returns the program, to change its load.
    pub fn program_mut(&mut self) -> &mut P {
        &mut self.network.application.program
    }

    /// Returns the server of a process.
    pub fn server(&self, process: ProcessId) -> Option<&P::Server> {
        self.network.application.servers.get(process.index())?.as_ref()
    }

    /// Returns the servers of all processes, in the order of their ids.
    pub fn servers(&self) -> impl Iterator<Item = &P::Server> {
        self.network.application.servers.iter().flatten()
    }

    /// Returns what a process has sent.
    pub fn sent(&self, process: ProcessId) -> Sent {
        let topology = self.network.topology();
        let host = topology.host_of(process);
        let port = Port((process.0 - topology.processes_of(host).start) as u16);
        let host = self.network.machine(NodeId(host.0)).and_then(RivalNode::host);
        host.and_then(|host| host.process(port)).map(RivalProcess::sent).unwrap_or_default()
    }
}
