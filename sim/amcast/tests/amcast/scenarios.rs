//! Small setups, with and without faults.

use onepipe_base::ProcessId;
use onepipe_sim_amcast::{FaultEvent, Load, SendPattern, Setup, SimEnv};
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

fn complete(mut env: SimEnv) -> SimEnv {
    assert_eq!(env.run_to_completion(100_000_000), None);
    env
}

#[test]
fn total_order_and_equal_histories_on_every_fabric() {
    for shape in [leaf_spine(), Shape::testbed(), Shape::fat_tree(4).expect("a fabric")] {
        let run = || complete(SimEnv::new(&setup(shape, 50)));
        let (one, other) = (run(), run());
        assert_eq!(one.trace_hash(), other.trace_hash());
        assert_eq!(one.checker().sent(), 100);
        assert!(one.deliveries().len() > 200, "{} of some groups each", one.deliveries().len());
        assert_eq!(one.checker().elections(), 0);
    }
}

#[test]
fn leaders_are_in_leaves_and_followers_in_spines() {
    let env = SimEnv::new(&setup(leaf_spine(), 1));
    let (hosts, layout) = (18, env.layout());
    let at = |group: usize, index: usize| {
        layout.node(layout.groups.groups[group].members[index]).0 - hosts
    };
    assert_eq!((at(0, 0), at(1, 0)), (0, 1));
    for group in 0..2 {
        let mut spines = [at(group, 1), at(group, 2)];
        spines.sort_unstable();
        assert_eq!(spines, [3, 4]);
    }
}

#[test]
fn crashed_leader_is_replaced_and_follower_not_needed() {
    for (index, elections) in [(0, 1), (1, 0)] {
        let mut env = SimEnv::new(&setup(leaf_spine(), 60));
        let member = env.layout().groups.groups[0].members[index];
        env.schedule(300_000, FaultEvent::Member(member));
        let env = complete(env);
        assert_eq!(env.checker().elections(), elections, "member {index} crashed");
        assert_ne!(env.leader(0), Some(member));
        assert_eq!(env.leader(1), Some(env.layout().groups.groups[1].members[0]));
    }
}

#[test]
fn switch_crash_disconnects_only_its_rack() {
    let mut env = SimEnv::new(&Setup { replicas: 3, ..setup(leaf_spine(), 60) });
    let leader = env.layout().groups.groups[0].members[0];
    let node = env.layout().node(leader);
    env.schedule(300_000, FaultEvent::Switch(node));
    let env = complete(env);
    assert_eq!(env.checker().elections(), 1);
    assert!(!env.is_alive(leader) && env.members().count() == 5);
    let dead = (0..env.layout().len() as u32).filter(|id| !env.is_alive(ProcessId(*id)));
    assert!(dead.count() > 2, "the leader, and the processes in its rack");
}

#[test]
fn crashed_coordinator_is_replaced() {
    let mut env = SimEnv::new(&setup(leaf_spine(), 60));
    let (first, leader) = (env.layout().coordinators[0], env.layout().groups.groups[1].members[0]);
    let node = env.layout().node(first);
    env.schedule(250_000, FaultEvent::Host(node));
    env.schedule(300_000, FaultEvent::Member(leader));
    let env = complete(env);
    assert_eq!(env.checker().elections(), 1);
    let late = env.deliveries().iter().filter(|one| one.sent_ns > 300_000);
    assert!(late.count() > 20, "the group makes progress");
}

#[test]
fn coordinator_that_receives_nothing_is_harmless() {
    let mut env = SimEnv::new(&setup(leaf_spine(), 60));
    let (first, leader) = (env.layout().coordinators[0], env.layout().groups.groups[0].members[0]);
    env.schedule(200_000, FaultEvent::CoordinatorLoss(first, Some(leader)));
    let env = complete(env);
    assert!(env.checker().elections() > 0);
    assert!(env.is_alive(leader) && env.leader(0) != Some(leader));
}

#[test]
fn replica_continues_from_state_of_another() {
    let mut env = SimEnv::new(&Setup { replicas: 3, ..setup(leaf_spine(), 100) });
    let replica = env.layout().groups.groups[0].replicas[1];
    let node = env.layout().node(replica);
    env.schedule(200_000, FaultEvent::Host(node));
    env.schedule(600_000, FaultEvent::Restart(node));
    let env = complete(env);
    assert!(env.is_alive(replica));
    let late = env.deliveries().iter().filter(|one| one.replica == 1 && one.at_ns > 600_000);
    assert!(late.count() > 10, "the replica delivers again");
}

/// The replica lags by more than members retain, and restarts with the state of another one, while
/// the group makes progress.
#[test]
fn lagging_replica_does_not_delay_group() {
    let setup = setup(leaf_spine(), 200);
    let load = Load { pattern: SendPattern::Every(5_000_000), is_subset: false, ..setup.load };
    let setup = Setup { history: 8, window: 4, load, ..setup };
    let run = |lags: bool| {
        let mut env = SimEnv::new(&setup);
        if lags {
            let node = env.layout().node(env.layout().groups.groups[0].replicas[1]);
            env.schedule(200_000, FaultEvent::Pause(node, 400_000));
        }
        let env = complete(env);
        let of = |replica| env.deliveries().iter().filter(move |one| one.replica == replica);
        (of(0).map(|one| one.at_ns).max(), of(1).count())
    };
    let (sound, lagging) = (run(false), run(true));
    assert_eq!((sound.0, sound.1), (lagging.0, 400));
    assert!(lagging.1 < 400, "the replica has received the state: {lagging:?}");
}

#[test]
fn members_on_hosts_deliver_and_pay_cpu_time() {
    let setup = Setup { is_rival: true, ..setup(leaf_spine(), 50) };
    let slow = Setup {
        cpu: CpuConfig { receive_ns: 1_000, send_ns: 1_000, ..CpuConfig::default() },
        entry_ns: 100,
        ..setup.clone()
    };
    let latency = |setup: &Setup| {
        let env = complete(SimEnv::new(setup));
        let all = env.deliveries().iter().map(|one| one.at_ns - one.sent_ns);
        all.sum::<u64>() / env.deliveries().len() as u64
    };
    let (fast, slow) = (latency(&setup), latency(&slow));
    assert!(slow > fast + 3_000, "{slow} and {fast} ns");
}
