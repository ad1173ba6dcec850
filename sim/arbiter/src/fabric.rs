//! The fabric of an arbiter, derived from the topology.

use std::collections::BTreeSet;

use onepipe_arbiter::{Core, Fabric, Labels, Tree};
use onepipe_base::{Port, SwitchId};
use onepipe_topology::{End, Node, Topology};

/// Returns the fabric between the racks of the first `nodes` hosts, and how paths become labels.
pub fn fabric_of(topology: &Topology, nodes: u32) -> (Core, Labels) {
    let tor = Node::Switch(SwitchId(0));
    let (rack_nodes, rack_links) = (topology.ports(tor).lower.into(), topology.ports(tor).upper);
    let spine = peers(topology, tor, false).first().copied();
    let spine_links = spine.map_or(0, |spine| topology.ports(spine).upper);
    let core = match spine {
        // A single rack, perhaps not with all of its hosts.
        None => Core::Racks(Fabric {
            nodes,
            rack_nodes: nodes.min(rack_nodes),
            paths: 1,
            is_strict: false,
        }),
        Some(_) if spine_links == 0 => {
            Core::Racks(Fabric { nodes, rack_nodes, paths: rack_links.into(), is_strict: false })
        }
        Some(spine) => Core::Tree(Tree {
            nodes,
            rack_nodes,
            pod_racks: peers(topology, spine, true).len() as u32,
            rack_links: rack_links.into(),
            spines: peers(topology, tor, false).len() as u32,
            spine_links: spine_links.into(),
        }),
    };
    // A label has eight bits per switch.
    let links = |all: u32, ends: usize| u8::try_from(all / ends.max(1) as u32).unwrap_or(0);
    let labels = Labels::new(0, links(rack_links.into(), 1));
    let labels = match (core, spine) {
        (Core::Tree(tree), Some(spine)) => Labels {
            pod_nodes: tree.rack_nodes * tree.pod_racks,
            parallel_links: links(tree.rack_links, tree.spines as usize),
            core_parallel_links: links(tree.spine_links, peers(topology, spine, false).len()),
            ..labels
        },
        (_, Some(_)) => Labels {
            parallel_links: links(rack_links.into(), peers(topology, tor, false).len()),
            ..labels
        },
        _ => labels,
    };
    (core, labels)
}

/// Returns the nodes linked to a switch from below, or from above.
fn peers(topology: &Topology, node: Node, is_below: bool) -> BTreeSet<Node> {
    let ports = topology.ports(node);
    let ports = if is_below { 0..ports.lower } else { ports.lower..ports.total() };
    let peer = |port| topology.peer(End { node, port: Port(port) }).map(|end| end.node);
    ports.filter_map(peer).collect()
}

#[cfg(test)]
mod tests {
    use onepipe_topology::Shape;

    use super::*;

    #[test]
    fn derives_fabrics_of_one_two_and_three_tiers() {
        let of = |shape, nodes| fabric_of(&Topology::new(shape, 1).expect("it fits"), nodes);
        let star = of(Shape::star(32).expect("it fits"), 31);
        let fabric = Fabric { nodes: 31, rack_nodes: 31, paths: 1, is_strict: false };
        assert_eq!(star, (Core::Racks(fabric), Labels::new(0, 0)));
        let two = of(Shape::leaf_spine(4, 3, 8).expect("it fits"), 24);
        let fabric = Fabric { nodes: 24, rack_nodes: 8, paths: 3, is_strict: false };
        assert_eq!(two, (Core::Racks(fabric), Labels::new(0, 3)));
        let three = of(Shape::testbed(), 32);
        let tree = Tree {
            nodes: 32,
            rack_nodes: 8,
            pod_racks: 2,
            rack_links: 8,
            spines: 2,
            spine_links: 8,
        };
        let labels = Labels {
            first: 0,
            uplinks: 8,
            pod_nodes: 16,
            parallel_links: 4,
            core_parallel_links: 4,
        };
        assert_eq!(three, (Core::Tree(tree), labels));
    }
}
