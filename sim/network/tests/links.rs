//! Delay, queueing, priorities and faults of links.

#[allow(dead_code)]
mod toy;

use onepipe_sim_network::{Config, Fault, LinkConfig, LinkFaults, LinkId, Loss, NodeId};
use onepipe_topology::Shape;
use toy::{inflict_both, ns, numbers, send, world};

fn star() -> Shape {
    Shape::star(3).expect("a star of three hosts is valid")
}

const SWITCH: NodeId = NodeId(3);

#[test]
fn a_frame_takes_its_sending_and_propagation_times_on_each_hop() {
    let mut world = world(star(), Config::default(), 1);
    send(&mut world, 0, 1, 7..8, 82);
    world.run_until(ns(10_000));
    // 52 + 82 + 66 = 200 bytes of 80 ps each, and 500 ns, on two hops.
    assert_eq!(world.application.heard, [(ns(2 * (16 + 500)), NodeId(1), 0, 7)]);
    assert_eq!((world.stats().hops, world.in_flight()), (2, 0));
}

#[test]
fn frames_stay_in_order_and_two_senders_share_a_link() {
    let mut world = world(star(), Config::default(), 1);
    send(&mut world, 0, 2, 0..500, 1_000);
    send(&mut world, 1, 2, 0..500, 1_000);
    world.run_until(ns(1_000_000));
    let from = |sender| {
        let heard = world.application.heard.iter().filter(move |(_, _, from, _)| *from == sender);
        heard.map(|(.., number)| *number).collect::<Vec<_>>()
    };
    assert_eq!(from(0), (0..500).collect::<Vec<_>>());
    assert_eq!(from(1), (0..500).collect::<Vec<_>>());
    // 1,118 bytes of 80 ps each, a thousand frames back to back.
    let last = world.application.heard.last().expect("frames were received").0.as_ns();
    assert!((89_440..91_000).contains(&last), "{last} ns");
}

#[test]
fn a_short_queue_overflows_and_a_long_one_is_marked() {
    let narrow =
        LinkConfig { queue_bytes_max: 20_000, mark_bytes: 10_000, ..LinkConfig::default() };
    let config = Config { host_link: narrow, ..Config::default() };
    let mut world = world(star(), config, 1);
    send(&mut world, 0, 2, 0..500, 1_000);
    send(&mut world, 1, 2, 0..500, 1_000);
    world.run_until(ns(1_000_000));
    let (stats, heard) = (*world.stats(), world.application.heard.len() as u64);
    assert!(stats.drops.queue_full > 100, "{stats:?}");
    assert_eq!(heard + stats.drops.queue_full, 1_000);
    assert!(stats.marked > 100);
}

#[test]
fn the_first_class_passes_the_second() {
    // Odd frames belong to the first class.
    let class = |bytes: &[u8]| 1 - bytes[21] % 2;
    let host_link = LinkConfig { classes: 2, ..LinkConfig::default() };
    let mut world = world(star(), Config { host_link, class, ..Config::default() }, 1);
    send(&mut world, 0, 2, 0..100, 1_000);
    send(&mut world, 1, 2, 100..200, 1_000);
    world.run_until(ns(1_000_000));
    let heard = numbers(&world, 2);
    let half =
        |rest| heard.iter().copied().filter(|n| n % 2 == rest && *n < 100).collect::<Vec<_>>();
    assert_eq!(half(0), (0..100).step_by(2).collect::<Vec<_>>(), "in order within a class");
    assert_eq!(half(1), (1..100).step_by(2).collect::<Vec<_>>(), "in order within a class");
    let place = |number| heard.iter().position(|n| *n == number).expect("no frame is lost");
    assert!(place(99) < place(20), "{heard:?}");
}

#[test]
fn loss_corruption_and_duplication_show_in_what_arrives() {
    let rates = |faults| {
        let mut world = world(star(), Config::default(), 9);
        let uplink = world.border(|node| node == NodeId(0))[0];
        world.inflict(Fault::Switches(uplink, faults));
        send(&mut world, 0, 1, 0..10_000, 64);
        world.run_until(ns(10_000_000));
        (*world.stats(), world.application.heard.len() as u64)
    };
    let (stats, heard) = rates(LinkFaults { loss: Loss::every(300_000), ..LinkFaults::default() });
    assert!((2_850..3_150).contains(&stats.drops.lost), "{stats:?}");
    assert_eq!(heard + stats.drops.lost, 10_000);

    let (stats, heard) = rates(LinkFaults { duplicate_ppm: 500_000, ..LinkFaults::default() });
    assert!((4_800..5_200).contains(&stats.duplicated), "{stats:?}");
    assert_eq!(heard, 10_000 + stats.duplicated);

    // The test machine checks only headers, so frames with a corrupted payload are accepted.
    let (stats, heard) = rates(LinkFaults { corrupt_ppm: 500_000, ..LinkFaults::default() });
    assert!((4_800..5_200).contains(&stats.corrupted), "{stats:?}");
    assert!(stats.drops.refused > 1_000, "{stats:?}");
    assert_eq!(heard + stats.drops.refused, 10_000);
}

#[test]
fn a_reordering_link_reorders_and_a_sound_one_does_not() {
    let order = |reorder_ppm| {
        let mut world = world(star(), Config::default(), 9);
        let faults = LinkFaults { reorder_ppm, delay_ns_max: 2_000, ..LinkFaults::default() };
        inflict_both(&mut world, NodeId(0), SWITCH, |link| Fault::Switches(link, faults));
        send(&mut world, 0, 1, 0..1_000, 64);
        world.run_until(ns(10_000_000));
        numbers(&world, 1)
    };
    assert!(order(0).is_sorted());
    let mut shuffled = order(200_000);
    assert!(!shuffled.is_sorted());
    shuffled.sort_unstable();
    assert_eq!(shuffled, (0..1_000).collect::<Vec<_>>());
}

#[test]
fn a_cut_loses_what_is_on_the_link_and_a_mended_one_works() {
    let mut world = world(star(), Config::default(), 1);
    send(&mut world, 0, 1, 0..10, 64);
    world.run_until(ns(300));
    inflict_both(&mut world, NodeId(0), SWITCH, Fault::Cut);
    send(&mut world, 0, 1, 10..20, 64);
    world.run_until(ns(5_000));
    assert_eq!((numbers(&world, 1), world.stats().drops.link_down), (vec![], 20));
    inflict_both(&mut world, NodeId(0), SWITCH, Fault::Mend);
    send(&mut world, 0, 1, 20..30, 64);
    world.run_until(ns(10_000));
    assert_eq!(numbers(&world, 1), (20..30).collect::<Vec<_>>());
}

#[test]
fn one_direction_can_fail_alone() {
    let mut world = world(star(), Config::default(), 1);
    let up: LinkId =
        world.links().find(|(_, from, _)| *from == NodeId(0)).expect("the host has a link").0;
    world.schedule(ns(0), Fault::Cut(up));
    world.run_until(ns(1));
    send(&mut world, 0, 1, 0..5, 64);
    send(&mut world, 1, 0, 5..9, 64);
    world.run_until(ns(10_000));
    assert_eq!((numbers(&world, 1), numbers(&world, 0)), (vec![], vec![5, 6, 7, 8]));
}
