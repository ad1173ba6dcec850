//! Shortest-path routing around failed components, as a routing protocol would find.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use onepipe_base::{HostId, Port, ProcessId, Psn, SwitchId};
use onepipe_sim_network::NodeId;
use onepipe_topology::{End, Node as Vertex, PortRange, Spread, Topology};

use crate::layout::Layout;

/// Components that frames cannot pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unavailable {
    /// Failed nodes.
    pub nodes: BTreeSet<NodeId>,
    /// Failed directed links, by the node and port that they start at.
    pub ports: BTreeSet<(NodeId, Port)>,
}

/// Routing table of a switch: the ports on shortest paths to each process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Routes {
    ports: Arc<Vec<Vec<Port>>>,
    salt: u32,
}

impl Routes {
    /// Returns the output port for a frame, or `None` if `dst` is unreachable. All frames from one
    /// sender to one receiver take the same path.
    pub fn port(&self, src: ProcessId, dst: ProcessId) -> Option<Port> {
        let ports = self.ports.get(dst.index()).filter(|ports| !ports.is_empty())?;
        let all = PortRange::new(Port(0), ports.len() as u16);
        let nth = Spread::PerFlow.choose(all, self.salt, (src, dst), Psn(0));
        Some(ports[nth.index()])
    }
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
fn links_of(topology: &Topology, node: NodeId) -> impl Iterator<Item = (Port, NodeId)> {
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

/// Returns the routing tables of all switches in the order of their ids.
pub fn compute_routes(topology: &Topology, layout: &Layout, dead: &Unavailable) -> Vec<Routes> {
    let mut tables = vec![vec![Vec::new(); layout.len()]; topology.switches() as usize];
    for process in (0..layout.len() as u32).map(ProcessId) {
        let to = vertex_of(topology, layout.node(process));
        let distances = distances(topology, to, dead);
        for (at, table) in tables.iter_mut().enumerate() {
            let node = NodeId(topology.hosts() + at as u32);
            let Some(here) = distances[node.index()] else { continue };
            table[process.index()] = links_of(topology, node)
                .filter(|(port, next)| {
                    distances[next.index()].is_some_and(|there| there + 1 == here)
                        && !dead.nodes.contains(next)
                        && !dead.ports.contains(&(node, *port))
                })
                .map(|(port, _)| port)
                .collect();
        }
    }
    let tables = tables.into_iter().zip(0..);
    tables.map(|(ports, salt)| Routes { ports: Arc::new(ports), salt }).collect()
}
