//! Small setups, with and without faults.

use onepipe_base::ProcessId;
use onepipe_sim_amcast::{FaultEvent, Load, SendPattern, Setup, World};
use onepipe_sim_network::CpuConfig;
use onepipe_topology::Shape;

fn leaf_spine() -> Shape {
    Shape::leaf_spine(3, 2, 6).expect("a fabric")
}

/// Two groups, each with two replicas, and two clients.
fn setup(shape: Shape, messages: u32) -> Setup {
    let setup = Setup::new(shape);
    // A message every 10 us.
    let load = Load { messages, pattern: SendPattern::Every(10_000_000), ..setup.load };
    Setup { groups: 2, clients: 2, load, ..setup }
}

fn settled(mut world: World) -> World {
    assert_eq!(world.run_to_completion(100_000_000), None);
    world
}

#[test]
fn on_every_fabric_everything_is_delivered_in_one_order_and_histories_repeat() {
    for shape in [leaf_spine(), Shape::testbed(), Shape::fat_tree(4).expect("a fabric")] {
        let run = || settled(World::new(&setup(shape, 50)));
        let (one, other) = (run(), run());
        assert_eq!(one.trace_hash(), other.trace_hash());
        assert_eq!(one.checker().sent(), 100);
        assert!(one.deliveries().len() > 200, "{} of some groups each", one.deliveries().len());
        assert_eq!(one.checker().elections(), 0);
    }
}

#[test]
fn leaders_sit_in_leaves_and_followers_in_spines() {
    let world = World::new(&setup(leaf_spine(), 1));
    let (hosts, layout) = (18, world.layout());
    let at = |group: usize, place: usize| {
        layout.node(layout.groups.groups[group].members[place]).0 - hosts
    };
    assert_eq!((at(0, 0), at(1, 0)), (0, 1));
    for group in 0..2 {
        let mut spines = [at(group, 1), at(group, 2)];
        spines.sort_unstable();
        assert_eq!(spines, [3, 4]);
    }
}

#[test]
fn a_leader_that_dies_is_replaced_and_a_follower_is_not_missed() {
    for (place, elections) in [(0, 1), (1, 0)] {
        let mut world = World::new(&setup(leaf_spine(), 60));
        let member = world.layout().groups.groups[0].members[place];
        world.schedule(300_000, FaultEvent::Member(member));
        let world = settled(world);
        assert_eq!(world.checker().elections(), elections, "member {place} died");
        assert_ne!(world.leader(0), Some(member));
        assert_eq!(world.leader(1), Some(world.layout().groups.groups[1].members[0]));
    }
}

#[test]
fn a_switch_that_dies_takes_its_rack_with_it_and_the_others_go_on() {
    let mut world = World::new(&Setup { replicas: 3, ..setup(leaf_spine(), 60) });
    let leader = world.layout().groups.groups[0].members[0];
    let node = world.layout().node(leader);
    world.schedule(300_000, FaultEvent::Switch(node));
    let world = settled(world);
    assert_eq!(world.checker().elections(), 1);
    assert!(!world.is_alive(leader) && world.members().count() == 5);
    let dead = (0..world.layout().len() as u32).filter(|id| !world.is_alive(ProcessId(*id)));
    assert!(dead.count() > 2, "the leader, and who sat in its rack");
}

#[test]
fn a_coordinator_that_dies_is_replaced_too() {
    let mut world = World::new(&setup(leaf_spine(), 60));
    let (first, leader) =
        (world.layout().coordinators[0], world.layout().groups.groups[1].members[0]);
    let node = world.layout().node(first);
    world.schedule(250_000, FaultEvent::Host(node));
    world.schedule(300_000, FaultEvent::Member(leader));
    let world = settled(world);
    assert_eq!(world.checker().elections(), 1);
    let late = world.deliveries().iter().filter(|one| one.sent_ns > 300_000);
    assert!(late.count() > 20, "and the group goes on");
}

#[test]
fn who_is_deaf_elects_in_vain_and_no_harm_is_done() {
    let mut world = World::new(&setup(leaf_spine(), 60));
    let (first, leader) =
        (world.layout().coordinators[0], world.layout().groups.groups[0].members[0]);
    world.schedule(200_000, FaultEvent::CoordinatorLoss(first, Some(leader)));
    let world = settled(world);
    assert!(world.checker().elections() > 0);
    assert!(world.is_alive(leader) && world.leader(0) != Some(leader));
}

#[test]
fn a_replica_goes_on_from_another_one_s_state() {
    let mut world = World::new(&Setup { replicas: 3, ..setup(leaf_spine(), 100) });
    let replica = world.layout().groups.groups[0].replicas[1];
    let node = world.layout().node(replica);
    world.schedule(200_000, FaultEvent::Host(node));
    world.schedule(600_000, FaultEvent::Restart(node));
    let world = settled(world);
    assert!(world.is_alive(replica));
    let late = world.deliveries().iter().filter(|one| one.replica == 1 && one.at_ns > 600_000);
    assert!(late.count() > 10, "it delivers again");
}

/// The replica lags by more than members retain, and restarts with the state of another one, while
/// the group makes progress.
#[test]
fn a_replica_that_lags_holds_nobody_up() {
    let setup = setup(leaf_spine(), 200);
    let load = Load { pattern: SendPattern::Every(5_000_000), is_subset: false, ..setup.load };
    let setup = Setup { history: 8, window: 4, load, ..setup };
    let run = |lags: bool| {
        let mut world = World::new(&setup);
        if lags {
            let node = world.layout().node(world.layout().groups.groups[0].replicas[1]);
            world.schedule(200_000, FaultEvent::Pause(node, 400_000));
        }
        let world = settled(world);
        let of = |replica| world.deliveries().iter().filter(move |one| one.replica == replica);
        (of(0).map(|one| one.at_ns).max(), of(1).count())
    };
    let (sound, lagging) = (run(false), run(true));
    assert_eq!((sound.0, sound.1), (lagging.0, 400));
    assert!(lagging.1 < 400, "it was given what it has missed: {lagging:?}");
}

#[test]
fn hosts_that_are_members_deliver_everything_too_and_processors_slow_them_down() {
    let setup = Setup { is_rival: true, ..setup(leaf_spine(), 50) };
    let slow = Setup {
        cpu: CpuConfig { receive_ns: 1_000, send_ns: 1_000, ..CpuConfig::default() },
        entry_ns: 100,
        ..setup.clone()
    };
    let latency = |setup: &Setup| {
        let world = settled(World::new(setup));
        let all = world.deliveries().iter().map(|one| one.at_ns - one.sent_ns);
        all.sum::<u64>() / world.deliveries().len() as u64
    };
    let (fast, slow) = (latency(&setup), latency(&slow));
    assert!(slow > fast + 3_000, "{slow} and {fast} ns");
}
