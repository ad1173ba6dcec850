//! Distances in the fabric around failed components.

use std::collections::{BTreeSet, VecDeque};

use onepipe_base::{HostId, Port, SwitchId};
use onepipe_sim_network::NodeId;
use onepipe_topology::{End, Node as Vertex, Topology};

/// Components that frames cannot pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unavailable {
    /// Failed nodes.
    pub nodes: BTreeSet<NodeId>,
    /// Failed directed links, by the node and port that they start at.
    pub ports: BTreeSet<(NodeId, Port)>,
}

pub(crate) fn vertex_of(topology: &Topology, node: NodeId) -> Vertex {
    match node.0.checked_sub(topology.hosts()) {
        Some(switch) => Vertex::Switch(SwitchId(switch)),
        None => Vertex::Host(HostId(node.0)),
    }
}

fn node_of(topology: &Topology, vertex: Vertex) -> Option<NodeId> {
    match vertex {
        Vertex::Host(host) => Some(NodeId(host.0)),
        Vertex::Switch(switch) => Some(NodeId(topology.hosts() + switch.0)),
        Vertex::Process(_) => None,
    }
}

/// Returns the links that start at `node`, with their ports and end nodes.
pub(crate) fn links_of(topology: &Topology, node: NodeId) -> impl Iterator<Item = (Port, NodeId)> {
    let vertex = vertex_of(topology, node);
    (0..topology.ports(vertex).total()).filter_map(move |port| {
        let peer = topology.peer(End { node: vertex, port: Port(port) })?;
        Some((Port(port), node_of(topology, peer.node)?))
    })
}

/// Returns the distance of each node from `to` in links; `None` if unreachable. A link is usable
/// only if both directions are.
pub(crate) fn distances(topology: &Topology, to: Vertex, dead: &Unavailable) -> Vec<Option<u32>> {
    let nodes = (topology.hosts() + topology.switches()) as usize;
    let mut found: Vec<Option<u32>> = vec![None; nodes];
    let first = node_of(topology, to).expect("a host or a switch");
    found[first.index()] = Some(0);
    let mut queue = VecDeque::from([(first, 0)]);
    while let Some((node, distance)) = queue.pop_front() {
        // Hosts do not forward.
        if distance > 0 && node.0 < topology.hosts() {
            continue;
        }
        for (port, next) in links_of(topology, node) {
            let is_dead = dead.nodes.contains(&next) || dead.ports.contains(&(node, port));
            if !is_dead && found[next.index()].is_none() {
                found[next.index()] = Some(distance + 1);
                queue.push_back((next, distance + 1));
            }
        }
    }
    found
}
