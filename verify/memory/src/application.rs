//! The application of the simulated network: builds the nodes, and passes their events to the
//! servers of the processes.

use std::collections::VecDeque;

use onepipe_base::{Controllers, HostId, Incarnation, Port, ProcessId, SwitchId};
use onepipe_controller::{Controller, Epoch, RecordId};
use onepipe_endpoint::Endpoint;
use onepipe_node::Host;
use onepipe_sim_engine::{Instant, NANOSECOND};
use onepipe_sim_network::{Application, LinkId, NodeContext, NodeId};
use onepipe_switch::{Form, Switch};
use onepipe_table::TableClient;
use onepipe_topology::{Node as Vertex, Topology};
use onepipe_verify_transactions::{Node, NodeEvent, Process};

use crate::load::Load;
use crate::server::Server;
use crate::setup::Setup;
use crate::terminals::Terminals;

/// Latency of the controller's store, in ns.
const STORE_NS: u64 = 1_000;

/// The servers of all processes, and the load.
#[derive(Debug)]
pub(crate) struct Servers<L> {
    pub setup: Setup,
    pub load: L,
    topology: Topology,
    /// The server of each process that runs.
    pub servers: Vec<Option<Server>>,
    /// Number of incarnations of each process so far.
    incarnations: Vec<u32>,
    /// Records of the controller on their way to its store.
    writing: VecDeque<RecordId>,
}

impl<L: Load> Servers<L> {
    pub fn new(setup: Setup, topology: Topology, load: L) -> Self {
        let processes = setup.processes as usize;
        Self {
            setup,
            load,
            topology,
            servers: (0..processes).map(|_| None).collect(),
            incarnations: vec![0; processes],
            writing: VecDeque::new(),
        }
    }

    fn controllers(&self) -> Option<Controllers> {
        self.setup.plan.controllers(self.topology.processes())
    }

    fn switch(&self, vertex: Vertex, id: u32, incarnation: u32) -> Switch {
        let ports = self.topology.ports(vertex);
        let config = &self.setup.plan.switch;
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
        let plan = self.setup.plan.control_plane.as_ref().expect("the plan has controllers");
        let config = onepipe_controller::Config {
            process: controllers.first,
            incarnation: Incarnation(incarnation + 1),
            controllers,
            frame_len_max: self.setup.plan.network.frame_len_max,
            processes_max: self.topology.processes(),
            switches_max: self.topology.hosts() + self.topology.switches(),
            heartbeat_interval_ns: self.setup.plan.switch.heartbeat_interval_ns,
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
        let config = onepipe_endpoint::Config {
            process,
            incarnation: Incarnation(incarnation),
            processes_max: self.topology.processes(),
            controllers: self.controllers(),
            ..self.setup.plan.endpoint.clone()
        };
        let endpoint = Endpoint::new(config).expect("the plan's endpoint is in range");
        // Memory is lost with its process: an owner that starts again has no regions.
        let owner = match incarnation {
            1 => self.setup.owner(process, &mut self.load).map(|(owner, _)| owner),
            _ => None,
        };
        let session = u64::from(incarnation);
        let (is_client, setup) = (self.setup.clients.contains(&id), &self.setup);
        let client = is_client
            .then(|| TableClient::new(session, setup.layout, setup.replicas.clone(), setup.table));
        let terminals = if is_client { setup.terminals } else { 0 };
        let terminals = Terminals::new(process, session, terminals);
        self.servers[id as usize] = Some(Server::new(owner, client, terminals));
        Process::new(process, endpoint, self.setup.message_ns, self.setup.ack_ns)
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

impl<L: Load> Application<Node> for Servers<L> {
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
        if ids.start >= self.setup.processes {
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
        let NodeEvent::Process(port, event) = event else { return };
        let id = self.id(at.node, port) as usize;
        let Some(endpoint) = machine.endpoint_mut(port) else { return };
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
            let Some(process) = machine.process(Port(port)) else { continue };
            let drained = process.drained();
            if let Some(Some(server)) = self.servers.get_mut(first + usize::from(port)) {
                server.serve(&mut at, (machine, Port(port)), drained, &mut self.load);
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
            for id in ids.filter(|id| *id < self.setup.processes) {
                self.servers[id as usize] = None;
            }
        }
    }

    fn on_departure(&mut self, _: Instant, _: LinkId, _: &[u8]) {}
}
