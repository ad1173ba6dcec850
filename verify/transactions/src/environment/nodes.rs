//! The application of the simulated network: builds the nodes, and passes their events to the
//! servers of the processes.

use std::collections::VecDeque;

use onepipe_base::{Controllers, HostId, Incarnation, Port, ProcessId, SwitchId};
use onepipe_controller::{Controller, Epoch, RecordId};
use onepipe_endpoint::Endpoint;
use onepipe_node::{Host, HostEvent};
use onepipe_sim_engine::{Instant, NANOSECOND};
use onepipe_sim_network::{Application, FabricEvent, LinkId, NodeContext, NodeId};
use onepipe_switch::{Form, Switch};
use onepipe_topology::{Node as Vertex, Topology};
use onepipe_wire::{Opcode, parse_header};

use super::{FabricSetup, ProcessServer, Program};
use crate::node::{Node, NodeEvent, Process, endpoint_mut};
use crate::usage::LinkBytes;

/// Latency of the controller's store, in ns.
const STORE_NS: u64 = 1_000;

/// The servers of all processes.
pub(super) struct Nodes<P: Program> {
    pub program: P,
    topology: Topology,
    /// The server of each process that runs.
    pub servers: Vec<Option<P::Server>>,
    /// Number of incarnations of each process so far.
    incarnations: Vec<u32>,
    /// Records of the controller on their way to its store.
    writing: VecDeque<RecordId>,
    /// Bytes that have entered each link.
    pub links: LinkBytes,
}

impl<P: Program> Nodes<P> {
    pub fn new(program: P, topology: Topology) -> Self {
        let FabricSetup { plan, processes, .. } = program.fabric();
        let processes = processes as usize;
        Self {
            links: LinkBytes::new(plan.network.host_link.overhead_bytes),
            program,
            topology,
            servers: (0..processes).map(|_| None).collect(),
            incarnations: vec![0; processes],
            writing: VecDeque::new(),
        }
    }

    fn controllers(&self) -> Option<Controllers> {
        self.program.fabric().plan.controllers(self.topology.processes())
    }

    fn switch(&self, vertex: Vertex, id: u32, incarnation: u32) -> Switch {
        let ports = self.topology.ports(vertex);
        let config = &self.program.fabric().plan.switch;
        let is_edge = matches!(vertex, Vertex::Host(_)) && config.form == Form::OffChip;
        let config = onepipe_switch::Config {
            switch: SwitchId(id),
            // A switch that is declared failed starts further incarnations by itself.
            incarnation: Incarnation(incarnation << 8),
            lower_ports: ports.lower,
            upper_ports: ports.upper,
            route: self.topology.route(vertex),
            controllers: self.controllers(),
            form: if is_edge { Form::Edge } else { config.form },
            ..config.clone()
        };
        Switch::new(config).expect("the plan's switch is in range")
    }

    fn controller(&self, controllers: Controllers, incarnation: u32) -> Controller {
        let plan =
            self.program.fabric().plan.control_plane.as_ref().expect("the plan has controllers");
        let config = onepipe_controller::Config {
            process: controllers.first,
            incarnation: Incarnation(incarnation + 1),
            controllers,
            frame_len_max: self.program.fabric().plan.network.frame_len_max,
            processes_max: self.topology.processes(),
            switches_max: self.topology.hosts() + self.topology.switches(),
            heartbeat_interval_ns: self.program.fabric().plan.switch.heartbeat_interval_ns,
            ..plan.controller.clone()
        };
        Controller::new(config).expect("the plan's controller is in range")
    }

    /// Builds the next incarnation of a process.
    pub fn build_process(&mut self, id: u32) -> Process {
        let process = ProcessId(id);
        let incarnation = &mut self.incarnations[id as usize];
        *incarnation += 1;
        let incarnation = *incarnation;
        let fabric = self.program.fabric();
        let config = onepipe_endpoint::Config {
            process,
            incarnation: Incarnation(incarnation),
            processes_max: self.topology.processes(),
            controllers: self.controllers(),
            ..fabric.plan.endpoint.clone()
        };
        let endpoint = Endpoint::new(config).expect("the plan's endpoint is in range");
        let built = Process::new(process, endpoint, fabric.cpu);
        self.servers[id as usize] = Some(self.program.build_server(process, incarnation));
        built
    }

    /// Returns the process at a port of a host.
    fn id(&self, node: NodeId, port: Port) -> u32 {
        self.topology.processes_of(HostId(node.0)).start + u32::from(port.0)
    }

    /// Passes the records of the controller to its store.
    fn poll_store(&mut self, at: &mut NodeContext<'_>, controller: &mut Controller) {
        while let Some((id, _)) = controller.poll_persist() {
            self.writing.push_back(id);
            at.alarm(STORE_NS * NANOSECOND, 0);
        }
    }
}

impl<P: Program> Application<Node> for Nodes<P> {
    fn build(&mut self, node: NodeId, incarnation: u32) -> Node {
        let hosts = self.topology.hosts();
        if node.0 >= hosts {
            let vertex = Vertex::Switch(SwitchId(node.0 - hosts));
            return Node::Switch(self.switch(vertex, node.0, incarnation));
        }
        let ids = self.topology.processes_of(HostId(node.0));
        if let Some(controllers) = self.controllers().filter(|all| ids.contains(&all.first.0)) {
            let controller = self.controller(controllers, incarnation);
            return Node::Controller(Box::new(controller), self.topology.network_card());
        }
        if ids.start >= self.program.fabric().processes {
            return Node::Idle;
        }
        let switch = self.switch(Vertex::Host(HostId(node.0)), node.0, incarnation);
        Node::Host(Host::new(switch, ids.map(|id| self.build_process(id)).collect()))
    }

    fn on_start(&mut self, mut at: NodeContext<'_>, machine: &mut Node) {
        match machine {
            Node::Controller(controller, _) => {
                controller.activate(at.now, Epoch(1), &[]);
                self.poll_store(&mut at, controller);
            }
            Node::Host(_) => {
                for port in 0..self.topology.processes_per_host() {
                    at.alarm(0, port.into());
                }
            }
            Node::Switch(_) | Node::Idle => {}
        }
    }

    fn on_event(&mut self, at: NodeContext<'_>, machine: &mut Node, event: NodeEvent) {
        let FabricEvent::Host(HostEvent::Process(port, event)) = event else { return };
        let id = self.id(at.node, port) as usize;
        let Some(endpoint) = endpoint_mut(machine, port) else { return };
        let Some(server) = &mut self.servers[id] else { return };
        if !server.on_event(at.now.mono, endpoint, event) {
            self.servers[id] = None;
            if let Node::Host(host) = machine {
                host.stop(port);
            }
        }
    }

    fn on_drained(&mut self, mut at: NodeContext<'_>, machine: &mut Node) {
        if let Node::Controller(controller, _) = machine {
            return self.poll_store(&mut at, controller);
        }
        let first = self.topology.processes_of(HostId(at.node.0)).start as usize;
        for port in 0..self.topology.processes_per_host() {
            let Some(process) = machine.host().and_then(|host| host.process(Port(port))) else {
                continue;
            };
            let drained = process.drained();
            if let Some(Some(server)) = self.servers.get_mut(first + usize::from(port)) {
                self.program.serve(server, &mut at, (machine, Port(port)), drained);
            }
        }
    }

    fn on_alarm(&mut self, mut at: NodeContext<'_>, machine: &mut Node, token: u32) {
        if let Node::Controller(controller, _) = machine {
            if let Some(id) = self.writing.pop_front() {
                controller.handle_persisted(at.now, id, Ok(()));
            }
            return self.poll_store(&mut at, controller);
        }
        let id = self.id(at.node, Port(token as u16));
        if let Some(Some(server)) = self.servers.get_mut(id as usize) {
            server.on_alarm();
        }
    }

    fn on_crash(&mut self, _: Instant, node: NodeId) {
        if node.0 < self.topology.hosts() {
            let ids = self.topology.processes_of(HostId(node.0));
            for id in ids.filter(|id| *id < self.program.fabric().processes) {
                self.servers[id as usize] = None;
            }
        }
    }

    fn cpu_ns(&self, node: NodeId, frame: &[u8]) -> u64 {
        let is_controller = self.program.fabric().contact_ns > 0
            && self.controllers().is_some_and(|all| self.topology.host_of(all.first).0 == node.0);
        match parse_header(frame) {
            Ok((_, opcode)) if is_controller => match opcode {
                Opcode::Beacon | Opcode::Solicit | Opcode::Hello | Opcode::Announce => 0,
                Opcode::AnnounceAck => 0,
                _ => self.program.fabric().contact_ns / 2,
            },
            _ => 0,
        }
    }

    fn on_departure(&mut self, _: Instant, link: LinkId, frame: &[u8]) {
        self.links.on_departure(link, frame);
    }
}
