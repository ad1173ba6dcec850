//! Builds the members, sends the root's objects, and records deliveries.

use onepipe_base::{Incarnation, Port, ProcessId};
use onepipe_bulk::{
    Config, Event, Group, GroupId, Link, Member, Outcome as Ended, PIECE_FRONT_LEN, SendError,
};
use onepipe_sim_engine::{Instant, Random};
use onepipe_sim_network::{Application, FabricEvent, LinkId, NodeContext, NodeId};
use onepipe_sim_traffic::Forwarder;
use onepipe_topology::{Node as Vertex, Topology};

use crate::node::{Node, NodeEvent};
use crate::setup::Setup;

/// Application of the simulated network: drives the root and observes the members.
#[derive(Debug)]
pub(crate) struct Workload {
    setup: Setup,
    topology: Topology,
    /// Objects sent.
    sent: Vec<Vec<u8>>,
    next: usize,
    /// Number of objects delivered by rank.
    pub delivered: Vec<u32>,
    pub completed_at: Vec<Option<Instant>>,
    pub lost: Vec<u32>,
    pub ended: Vec<Option<Ended>>,
    /// Whether each link connects two switches.
    is_core: Vec<bool>,
    pub core_bytes: u64,
}

impl Workload {
    pub fn new(setup: Setup, topology: Topology) -> Self {
        let mut random = Random::named(setup.seed, "octets of objects", 0);
        let object = |bytes: &usize| (0..*bytes).map(|_| random.below(256) as u8).collect();
        let is_switch = |vertex| matches!(vertex, Vertex::Switch(_));
        let members = setup.members.len();
        Self {
            sent: setup.objects.iter().map(object).collect(),
            next: 0,
            delivered: vec![0; members],
            completed_at: vec![None; members],
            lost: vec![0; members],
            ended: vec![None; members],
            is_core: topology
                .links()
                .map(|link| is_switch(link.from.node) && is_switch(link.to.node))
                .collect(),
            core_bytes: 0,
            setup,
            topology,
        }
    }

    fn rank(&self, node: NodeId) -> Option<usize> {
        self.setup.members.iter().position(|host| *host == node.0)
    }

    fn member(&self, own: usize, nic: Port) -> Group {
        let members = self.setup.members.iter();
        let members =
            members.map(|host| Member { process: ProcessId(*host), port: nic, link: Link::Lossy });
        let config = Config {
            algorithm: self.setup.algorithm.clone(),
            block_len: self.setup.block_len,
            piece_len: self.setup.piece_len,
            frame_len_max: PIECE_FRONT_LEN + self.setup.piece_len as usize,
            delivery: self.setup.delivery,
            ..Config::new(GroupId(1), members.collect(), own as u32, Incarnation(1))
        };
        Group::new(config).expect("the settings are in range")
    }

    /// Sends as many objects as the root accepts, and closes the group after the last one.
    fn send_objects(&mut self, root: &mut Group) {
        while let Some(object) = self.sent.get(self.next) {
            match root.send(object.clone()) {
                Ok(_) => self.next += 1,
                Err(unsent) if unsent.error == SendError::Full => return,
                // A member has failed: no more objects are accepted.
                Err(_) => break,
            }
        }
        // Closing a closed group has no effect.
        let _ = root.close();
    }
}

impl Application<Node> for Workload {
    fn build(&mut self, node: NodeId, _restarts: u32) -> Node {
        let vertex = self.topology.nodes().nth(node.index()).expect("a node of the topology");
        let ports = self.topology.ports(vertex);
        if let Vertex::Switch(_) = vertex {
            let (route, tier) = (self.topology.route(vertex), self.topology.tier(vertex));
            return Node::Switch(Forwarder::new(route, ports, tier, node.0));
        }
        let nic = Port(ports.total() - 1);
        self.rank(node).map_or(Node::Idle, |own| Node::Host(self.member(own, nic)))
    }

    fn on_start(&mut self, at: NodeContext<'_>, machine: &mut Node) {
        if let (Some(0), Node::Host(root)) = (self.rank(at.node), machine) {
            self.send_objects(root);
        }
    }

    fn on_event(&mut self, at: NodeContext<'_>, machine: &mut Node, event: NodeEvent) {
        let FabricEvent::Host(event) = event else { return };
        let (Some(rank), Node::Host(group)) = (self.rank(at.node), machine) else { return };
        match event {
            Event::Announced { object, bytes } => {
                group.provide(object, vec![0; bytes as usize]).expect("the object was announced");
            }
            Event::Delivered { .. } => {
                self.delivered[rank] += 1;
                self.completed_at[rank] = Some(at.instant);
            }
            Event::Stable { object, memory } => {
                assert!(memory == self.sent[object as usize], "object {object} at rank {rank}");
                if rank == 0 {
                    self.send_objects(group);
                }
            }
            Event::Lost { .. } => self.lost[rank] += 1,
            Event::Failed(_) if rank == 0 => self.send_objects(group),
            Event::Closed(ended) => self.ended[rank] = Some(ended),
            _ => {}
        }
    }

    fn on_drained(&mut self, _at: NodeContext<'_>, _machine: &mut Node) {}

    fn on_alarm(&mut self, _at: NodeContext<'_>, _machine: &mut Node, _token: u32) {}

    fn on_crash(&mut self, _instant: Instant, _node: NodeId) {}

    fn on_departure(&mut self, _instant: Instant, link: LinkId, frame: &[u8]) {
        if self.is_core[link.index()] {
            self.core_bytes += frame.len() as u64;
        }
    }
}
