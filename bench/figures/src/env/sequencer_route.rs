//! The location of the sequencer, and the routes towards it.

use std::collections::VecDeque;

use onepipe_base::{HostId, Port, ProcessId, SwitchId};
use onepipe_topology::{End, Node as Vertex, Topology};

/// Routes to the sequencer.
#[derive(Clone, Debug)]
pub(super) struct SequencerRoute {
    pub process: ProcessId,
    pub vertex: Vertex,
    /// The port towards the sequencer, for each host and then each switch.
    ports: Vec<Option<Port>>,
}

impl SequencerRoute {
    /// Places the sequencer in the lowest switch above all members if `is_switch`, else on the
    /// first host. A breadth-first search from there finds each node's port.
    pub fn new(topology: &Topology, members: u32, is_switch: bool) -> Self {
        let vertex = if is_switch {
            lowest_switch_above(topology, members)
        } else {
            Vertex::Host(HostId(0))
        };
        let vertices: Vec<Vertex> = topology.nodes().collect();
        let index_of = |node| vertices.iter().position(|one| *one == node);
        let mut ports = vec![None; vertices.len()];
        let mut queue = VecDeque::from([vertex]);
        while let Some(node) = queue.pop_front() {
            for port in 0..topology.ports(node).total() {
                let Some(peer) = topology.peer(End { node, port: Port(port) }) else { continue };
                let index = index_of(peer.node).filter(|_| peer.node != vertex);
                let Some(index) = index else { continue };
                if ports[index].is_none() {
                    ports[index] = Some(peer.port);
                    queue.push_back(peer.node);
                }
            }
        }
        Self { process: ProcessId(members), vertex, ports }
    }

    /// Returns the port of node `index` towards the sequencer; `None` at the sequencer itself.
    pub fn port(&self, index: usize) -> Option<Port> {
        self.ports[index]
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
            for start in 0..vertices.len() {
                let mut at = start;
                for _ in 0..5 {
                    let Some(port) = route.port(at) else { break };
                    let end = topology.peer(End { node: vertices[at], port }).expect("linked");
                    at = vertices.iter().position(|one| *one == end.node).expect("a node");
                }
                assert_eq!(vertices[at], route.vertex, "from {:?}", vertices[start]);
            }
        }
    }
}
