//! For every shape and every choice among equal-cost paths: links are consistent, and every process
//! is reached by first climbing and then descending.

use onepipe_base::{HostId, Port, ProcessId, SwitchId};
use onepipe_topology::{End, Node, PortRange, Shape, Topology};
use proptest::prelude::*;

fn shapes() -> impl Strategy<Value = Shape> {
    let valid = "generated within the limits";
    prop_oneof![
        (1u32..40).prop_map(move |hosts| Shape::star(hosts).expect(valid)),
        (1u32..7, 1u32..5, 1u32..6)
            .prop_map(move |(leaves, spines, hosts)| Shape::leaf_spine(leaves, spines, hosts)
                .expect(valid)),
        (1u32..5).prop_map(move |half| Shape::fat_tree(2 * half).expect(valid)),
        Just(Shape::testbed()),
    ]
}

proptest! {
    #[test]
    fn links_are_bidirectional_between_adjacent_tiers(shape in shapes(), processes in 1u16..4) {
        let topology = Topology::new(shape, processes).expect("small");
        let mut count = 0;
        for link in topology.links() {
            prop_assert_ne!(link.from.node, link.to.node);
            prop_assert_eq!(topology.peer(link.to), Some(link.from));
            let (from, to) = (topology.tier(link.from.node), topology.tier(link.to.node));
            let is_upper = link.from.port.0 >= topology.ports(link.from.node).lower;
            prop_assert_eq!(to, if is_upper { from + 1 } else { from - 1 });
            count += 1;
        }
        let ports: u32 = topology.nodes().map(|node| u32::from(topology.ports(node).total())).sum();
        prop_assert_eq!(count, ports - topology.processes());
        for id in 0..topology.processes() {
            let process = End { node: Node::Process(ProcessId(id)), port: Port(0) };
            let host = topology.peer(process).expect("every process sits on a host");
            prop_assert_eq!(host.node, Node::Host(topology.host_of(ProcessId(id))));
            prop_assert_eq!(topology.peer(host), Some(process));
        }
    }

    #[test]
    fn paths_are_valley_free(shape in shapes(), processes in 1u16..4, seed in any::<u64>()) {
        let topology = Topology::new(shape, processes).expect("small");
        let total = topology.processes();
        for pair in 0..total * 4 {
            let src = ProcessId(pair % total);
            let dst = ProcessId((pair.wrapping_mul(2_654_435_761) ^ seed as u32) % total);
            if src == dst {
                continue;
            }
            let choose = |_, ports: PortRange| ports.nth((seed >> (pair % 48)) as u32);
            let (mut descends, mut last) = (false, Node::Process(src));
            let mut length = 0;
            for end in topology.path(src, dst, choose) {
                prop_assert!(end.port.0 < topology.ports(end.node).total());
                let climbs = end.port.0 >= topology.ports(end.node).lower;
                prop_assert!(!(climbs && descends), "valley at {:?}: {:?} to {:?}", end, src, dst);
                descends = !climbs;
                last = topology.peer(end).expect("a port that a route names is linked").node;
                length += 1;
            }
            prop_assert_eq!(last, Node::Process(dst));
            let hosts = (topology.host_of(src), topology.host_of(dst));
            let switches = topology.switches_between(hosts.0, hosts.1);
            let hosts = if hosts.0 == hosts.1 { 1 } else { 2 };
            prop_assert_eq!(length, 1 + hosts + switches);
        }
    }

    #[test]
    fn no_route_to_missing_process(shape in shapes(), beyond in any::<u32>()) {
        let topology = Topology::new(shape, 2).expect("small");
        let dst = ProcessId(topology.processes().saturating_add(beyond));
        for node in topology.nodes() {
            prop_assert_eq!(topology.route(node).next(dst), None);
        }
    }
}

#[test]
fn testbed_matches_paper() {
    let topology = Topology::new(Shape::testbed(), 16).expect("512 processes");
    assert_eq!((topology.hosts(), topology.switches(), topology.processes()), (32, 10, 512));
    let count = |tier| topology.nodes().filter(|node| topology.tier(*node) == tier).count();
    assert_eq!((count(2), count(3), count(4)), (4, 4, 2));
    for id in 0..8 {
        let ports = topology.ports(Node::Switch(SwitchId(id)));
        assert_eq!(ports.lower, ports.upper, "ToR and spine: no oversubscription");
        assert!(ports.total() <= 32, "the paper's switches have 32 ports");
    }
    for id in 8..10 {
        let ports = topology.ports(Node::Switch(SwitchId(id)));
        assert_eq!((ports.lower, ports.upper), (16, 0));
    }
    // "<=8, 16, and >=32 processes have 1, 3, and 5 network hops" (section 7.2).
    let hops = |other| topology.switches_between(HostId(0), HostId(other));
    assert_eq!((hops(7), hops(15), hops(31)), (1, 3, 5));
}

#[test]
fn fat_tree_matches_textbook_numbers() {
    for k in [2, 4, 8, 16] {
        let topology = Topology::new(Shape::fat_tree(k).expect("even"), 1).expect("small");
        assert_eq!((topology.hosts(), topology.switches()), (k * k * k / 4, 5 * k * k / 4));
        let switches = topology.nodes().filter(|node| matches!(node, Node::Switch(_)));
        assert!(switches.into_iter().all(|node| u32::from(topology.ports(node).total()) == k));
    }
}

#[test]
fn route_size_does_not_grow_with_fabric() {
    let topology = Topology::new(Shape::fat_tree(52).expect("even"), 16).expect("within limits");
    assert_eq!((topology.hosts(), topology.processes()), (35_152, 562_432));
    let last = ProcessId(topology.processes() - 1);
    let ends: Vec<End> = topology.path(ProcessId(0), last, |_, ports| ports.first()).collect();
    assert_eq!(ends.len(), 8);
    assert_eq!(ends[7], End { node: Node::Host(HostId(35_151)), port: Port(15) });
    assert!(size_of::<onepipe_topology::Route>() <= 40);
}

#[test]
fn missing_ends_have_no_peer() {
    let topology = Topology::new(Shape::star(2).expect("small"), 2).expect("small");
    for (node, port) in [
        (Node::Process(ProcessId(4)), 0),
        (Node::Process(ProcessId(0)), 1),
        (Node::Host(HostId(2)), 2),
        (Node::Host(HostId(0)), 3),
        (Node::Switch(SwitchId(1)), 0),
        (Node::Switch(SwitchId(0)), 2),
    ] {
        assert_eq!(topology.peer(End { node, port: Port(port) }), None);
    }
    assert!(Topology::new(Shape::testbed(), 0).is_err());
}
