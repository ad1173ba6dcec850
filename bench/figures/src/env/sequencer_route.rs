//! The location of the sequencer, and the routes towards it.

use std::collections::VecDeque;

use onepipe_base::{HostId, Port, ProcessId, Psn, SwitchId};
use onepipe_topology::{End, FlowKey, Node as Vertex, PortRange, Spread, Topology};

/// Routes to the sequencer.
#[derive(Clone, Debug)]
pub(super) struct SequencerRoute {
    pub process: ProcessId,
    pub vertex: Vertex,
    /// All ports on a shortest path to the sequencer, for each host and then each switch.
    ports: Vec<Vec<Port>>,
}

/// What one node knows of the routes to the sequencer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SequencerPorts {
    process: ProcessId,
    ports: Vec<Port>,
    /// Differs between nodes.
    salt: u32,
}

impl SequencerPorts {
    /// Returns the port of a frame from `src` to the sequencer; `None` if the frame is for another
    /// process, or if the sequencer is at this node. All frames of a sender take one path, so they
    /// stay in order; senders are spread over equal-cost paths as all other flows are.
    #[inline]
    pub fn port(&self, src: ProcessId, dst: ProcessId) -> Option<Port> {
        if dst != self.process || self.ports.is_empty() {
            return None;
        }
        let indices = PortRange::new(Port(0), self.ports.len() as u16);
        let flow = FlowKey { src, dst, psn: Psn(0) };
        Some(self.ports[Spread::PerFlow.choose(indices, self.salt, flow).index()])
    }
}

impl SequencerRoute {
    /// Places the sequencer in the lowest switch above all members if `is_switch`, else on the
    /// first host. A breadth-first search from there finds the ports of each node that lead closer.
    pub fn new(topology: &Topology, members: u32, is_switch: bool) -> Self {
        let vertex = if is_switch {
            lowest_switch_above(topology, members)
        } else {
            Vertex::Host(HostId(0))
        };
        let vertices: Vec<Vertex> = topology.nodes().collect();
        let index_of = |node| vertices.iter().position(|one| *one == node);
        let mut ports = vec![Vec::new(); vertices.len()];
        let mut hops = vec![usize::MAX; vertices.len()];
        if let Some(index) = index_of(vertex) {
            hops[index] = 0;
        }
        let mut queue = VecDeque::from([vertex]);
        while let Some(node) = queue.pop_front() {
            let Some(at) = index_of(node) else { continue };
            for port in 0..topology.ports(node).total() {
                let Some(peer) = topology.peer(End { node, port: Port(port) }) else { continue };
                let Some(index) = index_of(peer.node) else { continue };
                if hops[index] == usize::MAX {
                    hops[index] = hops[at] + 1;
                    queue.push_back(peer.node);
                }
                if hops[index] == hops[at] + 1 {
                    ports[index].push(peer.port);
                }
            }
        }
        Self { process: ProcessId(members), vertex, ports }
    }

    /// Returns what node `index` knows of the routes.
    pub fn ports_of(&self, index: usize) -> SequencerPorts {
        SequencerPorts {
            process: self.process,
            ports: self.ports[index].clone(),
            salt: index as u32,
        }
    }
}

/// Returns the first switch of the lowest tier whose switches have all members below them.
fn lowest_switch_above(topology: &Topology, members: u32) -> Vertex {
    let last_host = topology.host_of(ProcessId(members - 1));
    // Members in one rack need a ToR (tier 2), in one pod a spine (3), else a core switch (4).
    let tier = match topology.switches_between(HostId(0), last_host) {
        0 | 1 => 2,
        3 => 3,
        _ => 4,
    };
    let mut switches = (0..topology.switches()).map(|id| Vertex::Switch(SwitchId(id)));
    switches.find(|one| topology.tier(*one) == tier).expect("every tier has a switch")
}

#[cfg(test)]
mod tests {
    use onepipe_topology::Shape;

    use super::*;

    #[test]
    fn every_node_routes_to_the_sequencer() {
        let topology = Topology::new(Shape::testbed(), 2).expect("the processes fit the testbed");
        for (members, tier) in [(8, 2), (32, 3), (64, 4)] {
            let route = SequencerRoute::new(&topology, members, true);
            assert_eq!(topology.tier(route.vertex), tier, "{members} members");
            let vertices: Vec<Vertex> = topology.nodes().collect();
            for (start, src) in (0..vertices.len()).flat_map(|start| [(start, 0), (start, 1)]) {
                let mut at = start;
                for _ in 0..5 {
                    let port = route.ports_of(at).port(ProcessId(src), route.process);
                    let Some(port) = port else { break };
                    let end = topology.peer(End { node: vertices[at], port }).expect("linked");
                    at = vertices.iter().position(|one| *one == end.node).expect("a node");
                }
                assert_eq!(vertices[at], route.vertex, "from {:?}", vertices[start]);
            }
        }
    }

    #[test]
    fn senders_use_all_parallel_links() {
        let topology = Topology::new(Shape::testbed(), 16).expect("the processes fit the testbed");
        let route = SequencerRoute::new(&topology, 512, true);
        // The spines below the core switch have all its links between them.
        let below = topology.ports(route.vertex).lower;
        let mut used = std::collections::BTreeSet::new();
        for (index, vertex) in topology.nodes().enumerate() {
            let ports = route.ports_of(index);
            let is_next = |port: &Port| {
                let peer = topology.peer(End { node: vertex, port: *port });
                peer.is_some_and(|peer| peer.node == route.vertex)
            };
            let taken = (0..512).filter_map(|src| ports.port(ProcessId(src), route.process));
            used.extend(taken.filter(is_next).map(|port| (index, port)));
        }
        assert_eq!(used.len(), usize::from(below));
    }
}
