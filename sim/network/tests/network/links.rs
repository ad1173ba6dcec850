//! Delay, queueing, priorities and faults of links.

use crate::harness;

use harness::{inject_both, network, ns, numbers, send};
use onepipe_sim_network::{Config, Fault, LinkConfig, LinkFaults, LinkId, Loss, NodeId};
use onepipe_topology::Shape;

fn star() -> Shape {
    Shape::star(3).expect("a star of three hosts is valid")
}

const SWITCH: NodeId = NodeId(3);

#[test]
fn delay_is_serialization_plus_propagation_per_hop() {
    let mut network = network(star(), Config::default(), 1);
    send(&mut network, 0, 1, 7..8, 78);
    network.run_until(ns(10_000));
    // 56 + 78 + 66 = 200 bytes of 80 ps each, and 500 ns, on two hops.
    assert_eq!(network.application.received, [(ns(2 * (16 + 500)), NodeId(1), 0, 7)]);
    assert_eq!((network.stats().hops, network.in_flight()), (2, 0));
}

#[test]
fn shared_link_keeps_per_sender_order() {
    let mut network = network(star(), Config::default(), 1);
    send(&mut network, 0, 2, 0..500, 1_000);
    send(&mut network, 1, 2, 0..500, 1_000);
    network.run_until(ns(1_000_000));
    let from = |sender| {
        let received =
            network.application.received.iter().filter(move |(_, _, from, _)| *from == sender);
        received.map(|(.., number)| *number).collect::<Vec<_>>()
    };
    assert_eq!(from(0), (0..500).collect::<Vec<_>>());
    assert_eq!(from(1), (0..500).collect::<Vec<_>>());
    // 1,122 bytes of 80 ps each, a thousand frames back to back.
    let last = network.application.received.last().expect("frames were received").0.as_ns();
    assert!((89_760..91_000).contains(&last), "{last} ns");
}

#[test]
fn full_queue_drops_and_long_queue_marks() {
    let narrow = LinkConfig {
        queue_bytes_max: 20_000,
        ecn_threshold_bytes: 10_000,
        ..LinkConfig::default()
    };
    let config = Config { host_link: narrow, ..Config::default() };
    let mut network = network(star(), config, 1);
    send(&mut network, 0, 2, 0..500, 1_000);
    send(&mut network, 1, 2, 0..500, 1_000);
    network.run_until(ns(1_000_000));
    let (stats, received) = (*network.stats(), network.application.received.len() as u64);
    assert!(stats.drops.queue_full > 100, "{stats:?}");
    assert_eq!(received + stats.drops.queue_full, 1_000);
    assert!(stats.marked > 100);
}

#[test]
fn higher_priority_class_overtakes() {
    // Odd frames belong to the first class.
    let class = |bytes: &[u8]| 1 - bytes[19] % 2;
    let host_link = LinkConfig { classes: 2, ..LinkConfig::default() };
    let mut network = network(star(), Config { host_link, class, ..Config::default() }, 1);
    send(&mut network, 0, 2, 0..100, 1_000);
    send(&mut network, 1, 2, 100..200, 1_000);
    network.run_until(ns(1_000_000));
    let received = numbers(&network, 2);
    let half =
        |rest| received.iter().copied().filter(|n| n % 2 == rest && *n < 100).collect::<Vec<_>>();
    assert_eq!(half(0), (0..100).step_by(2).collect::<Vec<_>>(), "in order within a class");
    assert_eq!(half(1), (1..100).step_by(2).collect::<Vec<_>>(), "in order within a class");
    let position = |number| received.iter().position(|n| *n == number).expect("no frame is lost");
    assert!(position(99) < position(20), "{received:?}");
}

#[test]
fn loss_corruption_and_duplication_rates_are_met() {
    let rates = |faults| {
        let mut network = network(star(), Config::default(), 9);
        let uplink = network.boundary_links(|node| node == NodeId(0))[0];
        network.inject(Fault::SetLinkFaults(uplink, faults));
        send(&mut network, 0, 1, 0..10_000, 64);
        network.run_until(ns(10_000_000));
        (*network.stats(), network.application.received.len() as u64)
    };
    let (stats, received) =
        rates(LinkFaults { loss: Loss::uniform(300_000), ..LinkFaults::default() });
    assert!((2_850..3_150).contains(&stats.drops.lost), "{stats:?}");
    assert_eq!(received + stats.drops.lost, 10_000);

    let (stats, received) = rates(LinkFaults { duplicate_ppm: 500_000, ..LinkFaults::default() });
    assert!((4_800..5_200).contains(&stats.duplicated), "{stats:?}");
    assert_eq!(received, 10_000 + stats.duplicated);

    // The test machine checks only headers, so frames with a corrupted payload are accepted.
    let (stats, received) = rates(LinkFaults { corrupt_ppm: 500_000, ..LinkFaults::default() });
    assert!((4_800..5_200).contains(&stats.corrupted), "{stats:?}");
    assert!(stats.drops.rejected > 1_000, "{stats:?}");
    assert_eq!(received + stats.drops.rejected, 10_000);
}

#[test]
fn only_a_reordering_link_reorders() {
    let order = |reorder_ppm| {
        let mut network = network(star(), Config::default(), 9);
        let faults = LinkFaults { reorder_ppm, delay_ns_max: 2_000, ..LinkFaults::default() };
        inject_both(&mut network, NodeId(0), SWITCH, |link| Fault::SetLinkFaults(link, faults));
        send(&mut network, 0, 1, 0..1_000, 64);
        network.run_until(ns(10_000_000));
        numbers(&network, 1)
    };
    assert!(order(0).is_sorted());
    let mut shuffled = order(200_000);
    assert!(!shuffled.is_sorted());
    shuffled.sort_unstable();
    assert_eq!(shuffled, (0..1_000).collect::<Vec<_>>());
}

#[test]
fn cut_drops_frames_in_flight_until_repair() {
    let mut network = network(star(), Config::default(), 1);
    send(&mut network, 0, 1, 0..10, 64);
    network.run_until(ns(300));
    inject_both(&mut network, NodeId(0), SWITCH, Fault::Cut);
    send(&mut network, 0, 1, 10..20, 64);
    network.run_until(ns(5_000));
    assert_eq!((numbers(&network, 1), network.stats().drops.link_down), (vec![], 20));
    inject_both(&mut network, NodeId(0), SWITCH, Fault::Repair);
    send(&mut network, 0, 1, 20..30, 64);
    network.run_until(ns(10_000));
    assert_eq!(numbers(&network, 1), (20..30).collect::<Vec<_>>());
}

#[test]
fn directions_of_a_link_fail_independently() {
    let mut network = network(star(), Config::default(), 1);
    let up: LinkId =
        network.links().find(|(_, from, _)| *from == NodeId(0)).expect("the host has a link").0;
    network.schedule(ns(0), Fault::Cut(up));
    network.run_until(ns(1));
    send(&mut network, 0, 1, 0..5, 64);
    send(&mut network, 1, 0, 5..9, 64);
    network.run_until(ns(10_000));
    assert_eq!((numbers(&network, 1), numbers(&network, 0)), (vec![], vec![5, 6, 7, 8]));
}
