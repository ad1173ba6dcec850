//! Who sits where: members in switches, everybody else on hosts.

use onepipe_amcast::{Group, Groups};
use onepipe_base::{ProcessId, SwitchId};
use onepipe_sim_network::NodeId;
use onepipe_topology::{Node as Vertex, Topology};

use crate::routes::{Unavailable, distances};
use crate::setup::Setup;

/// The tier of top-of-rack switches (`Topology::tier`).
const TOR: u8 = 2;

/// Which process sits at which node. Members have the lowest ids, group by group, then replicas,
/// then clients, then coordinators.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The groups, and who sends to them.
    pub groups: Groups,
    /// The coordinators.
    pub coordinators: Vec<ProcessId>,
    nodes: Vec<NodeId>,
}

impl Layout {
    /// The leader of a group sits in a top-of-rack switch, its followers in the switches next to
    /// that which carry the fewest members: spines first. Replicas, clients and coordinators are
    /// spread over racks. Where hosts are members (`Setup::is_rival`), they are replicas, too.
    ///
    /// # Panics
    /// When there are fewer hosts, or fewer switches, than it takes.
    pub fn new(setup: &Setup, topology: &Topology) -> Self {
        let mut free = FreeNodes::new(topology);
        let (mut next, mut nodes) = (0, Vec::new());
        let mut assign = |at: Vec<NodeId>| -> Vec<ProcessId> {
            let first = next;
            next += at.len() as u32;
            nodes.extend(at);
            (first..next).map(ProcessId).collect()
        };
        let all = 0..setup.groups;
        let members: Vec<Vec<ProcessId>> = if setup.is_rival {
            all.clone().map(|group| assign(free.hosts(group, setup.members))).collect()
        } else {
            all.clone().map(|group| assign(free.switches(group, setup.members))).collect()
        };
        let replicas = if setup.is_rival { 0 } else { setup.replicas };
        let replicas = all.map(|group| assign(free.hosts(group, replicas))).collect::<Vec<_>>();
        let clients = assign(free.hosts(0, setup.clients));
        let coordinators = if setup.is_rival { 0 } else { setup.coordinators };
        let coordinators = assign(free.hosts(1, coordinators));
        let both = members.into_iter().zip(replicas);
        let groups = both.map(|(members, replicas)| Group { members, replicas }).collect();
        Self {
            groups: Groups {
                groups,
                clients,
                window: setup.window,
                message_groups_max: setup.groups as usize,
                frame_len_max: setup.frame_len_max,
            },
            coordinators,
            nodes,
        }
    }

    /// Where `process` sits.
    pub fn node(&self, process: ProcessId) -> NodeId {
        self.nodes[process.index()]
    }

    /// Who sits at `node`.
    pub fn at(&self, node: NodeId) -> impl Iterator<Item = ProcessId> {
        let nodes = (0u32..).map(ProcessId).zip(&self.nodes);
        nodes.filter(move |(_, at)| **at == node).map(|(process, _)| process)
    }

    /// How many processes there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is nobody.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

/// What is still free.
struct FreeNodes<'a> {
    topology: &'a Topology,
    /// Free hosts, rack by rack.
    racks: Vec<Vec<NodeId>>,
    /// How many members each switch has.
    load: Vec<u32>,
}

impl<'a> FreeNodes<'a> {
    fn new(topology: &'a Topology) -> Self {
        let per_rack = topology.shape().hosts_per_tor() as usize;
        let hosts: Vec<NodeId> = (0..topology.hosts()).map(NodeId).collect();
        Self {
            topology,
            racks: hosts
                .chunks(per_rack)
                .map(|rack| rack.iter().rev().copied().collect())
                .collect(),
            load: vec![0; topology.switches() as usize],
        }
    }

    /// One after the other in the racks from `first` on, as long as there is room.
    fn hosts(&mut self, first: u32, count: u32) -> Vec<NodeId> {
        let racks = self.racks.len();
        let mut rack = first as usize;
        let mut next_host = || {
            let order = (0..racks).map(|step| (rack + step) % racks);
            let at = order.into_iter().find(|at| !self.racks[*at].is_empty());
            rack += 1;
            self.racks[at.expect("there are hosts enough")].pop()
        };
        (0..count).map(|_| next_host().expect("the rack is not empty")).collect()
    }

    /// The switches of a group's members, the leader's first.
    fn switches(&mut self, group: u32, count: u32) -> Vec<NodeId> {
        let leader = group as usize % self.racks.len();
        let from = distances(
            self.topology,
            Vertex::Switch(SwitchId(leader as u32)),
            &Unavailable::default(),
        );
        let hosts = self.topology.hosts() as usize;
        let tier = |at: usize| self.topology.tier(Vertex::Switch(SwitchId(at as u32)));
        let mut others: Vec<usize> = (0..self.load.len()).filter(|at| *at != leader).collect();
        others.sort_by_key(|at| (tier(*at) == TOR, from[hosts + at], self.load[*at], *at));
        assert!(others.len() + 1 >= count as usize, "there are switches enough");
        let chosen = std::iter::once(leader).chain(others).take(count as usize);
        chosen
            .map(|at| {
                self.load[at] += 1;
                NodeId(hosts as u32 + at as u32)
            })
            .collect()
    }
}
