//! Assignment of processes to nodes: members to switches, all others to hosts.

use onepipe_amcast::{Group, Groups};
use onepipe_base::{ProcessId, SwitchId};
use onepipe_sim_network::NodeId;
use onepipe_topology::{Node as Vertex, Topology};

use crate::reachability::{Unavailable, distances};
use crate::setup::Setup;

/// Tier of top-of-rack switches (`Topology::tier`).
const TOR: u8 = 2;

/// Assignment of processes to nodes. Members have the lowest ids, group by group, followed by
/// replicas, clients and coordinators.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Groups and clients.
    pub groups: Groups,
    /// The processes that coordinate.
    pub coordinators: Vec<ProcessId>,
    nodes: Vec<NodeId>,
}

impl Layout {
    /// Assigns the leader of a group to a top-of-rack switch, and the followers to the nearest
    /// switches with the fewest members, spines first. Replicas, clients and coordinators are
    /// spread over the racks. If hosts are members (`Setup::is_rival`), they are replicas as well.
    ///
    /// # Panics
    /// If there are not enough hosts or switches.
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

    /// Returns the node of `process`.
    pub fn node(&self, process: ProcessId) -> NodeId {
        self.nodes[process.index()]
    }

    /// Returns the processes at `node`.
    pub fn at(&self, node: NodeId) -> impl Iterator<Item = ProcessId> {
        let nodes = (0u32..).map(ProcessId).zip(&self.nodes);
        nodes.filter(move |(_, at)| **at == node).map(|(process, _)| process)
    }

    /// Returns the number of processes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns whether there are no processes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

/// Nodes that are not assigned yet.
struct FreeNodes<'a> {
    topology: &'a Topology,
    /// Free hosts by rack.
    racks: Vec<Vec<NodeId>>,
    /// Number of members in each switch.
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

    /// Assigns hosts round-robin over the racks, from rack `first` on.
    fn hosts(&mut self, first: u32, count: u32) -> Vec<NodeId> {
        let racks = self.racks.len();
        let mut rack = first as usize;
        let mut next_host = || {
            let order = (0..racks).map(|step| (rack + step) % racks);
            let at = order.into_iter().find(|at| !self.racks[*at].is_empty());
            rack += 1;
            self.racks[at.expect("enough hosts")].pop()
        };
        (0..count).map(|_| next_host().expect("the rack is not empty")).collect()
    }

    /// Assigns the switches of a group's members, the leader's first.
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
        assert!(others.len() + 1 >= count as usize, "enough switches");
        let chosen = std::iter::once(leader).chain(others).take(count as usize);
        chosen
            .map(|at| {
                self.load[at] += 1;
                NodeId(hosts as u32 + at as u32)
            })
            .collect()
    }
}
