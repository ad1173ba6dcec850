//! Shortest-path routing around failed components, as a routing protocol would find.

use std::sync::Arc;

use onepipe_base::{Port, ProcessId, Psn};
use onepipe_sim_network::NodeId;
use onepipe_topology::{FlowKey, PortRange, Spread, Topology};

use crate::layout::Layout;
use crate::reachability::{Unavailable, distances, links_of, vertex_of};

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
        let nth = Spread::PerFlow.choose(all, self.salt, FlowKey { src, dst, psn: Psn(0) });
        Some(ports[nth.index()])
    }
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
