//! Crashes, pauses, clocks, CPUs and determinism.

use crate::harness;

use harness::{HOP_ONLY, TestNetwork, network, ns, numbers, send};
use onepipe_base::Mono;
use onepipe_sim_network::{
    ClockConfig, Config, CpuConfig, Fault, LinkFaults, Loss, NodeId, OffChipCpu,
};
use onepipe_topology::Shape;

const FREE_CPU: OffChipCpu =
    OffChipCpu { to_cpu_ns: 0, to_chip_ns: 0, receive_ns: 0, send_ns: 0, backlog_ns_max: 0 };

fn star() -> Shape {
    Shape::star(3).expect("a star of three hosts is valid")
}

#[test]
fn crash_clears_state_and_alarms_until_restart() {
    let mut network = network(star(), Config::default(), 1);
    network.command(NodeId(1), |mut at, harness, _| {
        at.alarm(20_000_000, 5);
        harness.timer = Some(at.now.mono.after_ns(30_000));
    });
    network.schedule(ns(10_000), Fault::Crash(NodeId(1)));
    network.schedule(ns(15_000), Fault::Restart(NodeId(1)));
    network.run_until(ns(12_000));
    send(&mut network, 0, 1, 0..4, 64);
    network.run_until(ns(40_000));
    assert_eq!(network.stats().drops.node_down, 4);
    assert_eq!(network.application.crash_requested, [NodeId(1)]);
    assert_eq!(network.application.incarnations.last(), Some(&(NodeId(1), 1)));
    assert!(network.application.alarms.is_empty());
    assert!(network.machine(NodeId(1)).expect("the node has restarted").fired.is_empty());
    send(&mut network, 0, 1, 4..8, 64);
    network.run_until(ns(50_000));
    assert_eq!(numbers(&network, 1), [4, 5, 6, 7]);
}

#[test]
fn paused_host_queues_frames() {
    let mut network = network(star(), Config::default(), 1);
    network.inject(Fault::Pause(NodeId(1), 50_000));
    send(&mut network, 0, 1, 0..4, 64);
    network.run_until(ns(49_999));
    assert_eq!(numbers(&network, 1), Vec::<u32>::new());
    network.run_until(ns(50_000));
    assert_eq!(numbers(&network, 1), [0, 1, 2, 3]);
}

#[test]
fn node_is_current_when_it_runs_and_no_frame_waits() {
    let cpu = CpuConfig { receive_ns: 1_000, ..CpuConfig::default() };
    let mut network = network(star(), Config { cpu, ..Config::default() }, 1);
    let is_current = |network: &mut TestNetwork, at_ns| {
        network.run_until(ns(at_ns));
        let mut is_current = None;
        network.command(NodeId(1), |at, _, _| is_current = Some(at.is_current));
        is_current.expect("the node is up")
    };
    assert!(is_current(&mut network, 1_000));
    network.inject(Fault::Pause(NodeId(1), 50_000));
    assert!(!is_current(&mut network, 2_000), "it is paused, and nothing has arrived");
    send(&mut network, 0, 1, 0..4, 64);
    assert!(!is_current(&mut network, 50_999));
    assert!(!is_current(&mut network, 52_500), "two frames wait");
    assert!(is_current(&mut network, 60_000));
    assert_eq!(numbers(&network, 1), [0, 1, 2, 3]);
}

#[test]
fn slow_cpu_spaces_frames_and_bounds_its_ring() {
    let cpu = CpuConfig { receive_ns: 1_000, send_ns: 10, poll_ns: 100, ring_frames_max: 16 };
    let mut network = network(star(), Config { cpu, ..Config::default() }, 1);
    send(&mut network, 0, 1, 0..100, 64);
    network.run_until(ns(1_000_000));
    let times: Vec<u64> = network.application.received.iter().map(|(at, ..)| at.as_ns()).collect();
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= 1_000), "{times:?}");
    let dropped = network.stats().drops.ring_full;
    assert!(dropped > 50 && dropped + times.len() as u64 == 100, "{dropped} dropped");
}

#[test]
fn timers_follow_the_local_clock_not_steps() {
    let clocks = ClockConfig { offset_ns_max: 1_000_000, drift_ppb_max: 500_000 };
    let mut network = network(star(), Config { clocks, ..Config::default() }, 3);
    let mut deadline = Mono::from_ns(0);
    network.command(NodeId(0), |at, harness, _| {
        deadline = at.now.mono.after_ns(1_000_000);
        harness.timer = Some(deadline);
    });
    network.schedule(ns(1_000), Fault::StepClock(NodeId(0), 3_600_000_000_000));
    let before = network.clock(NodeId(0)).read(network.now()).sync;
    network.run_until(ns(2_000_000));
    assert_eq!(network.machine(NodeId(0)).expect("the node is up").fired, [deadline]);
    let after = network.clock(NodeId(0)).read(network.now()).sync;
    assert_eq!(after.since_ns(before) / 1_000_000_000, 3_600);
}

#[test]
fn equal_seeds_give_equal_traces() {
    let run = |seed: u64, loss| {
        let clocks = ClockConfig { offset_ns_max: 1_000, drift_ppb_max: 50_000 };
        let config = Config { clocks, ..Config::default() };
        let mut network = network(Shape::testbed(), config, seed);
        let links: Vec<_> = network.links().map(|(link, ..)| link).collect();
        for link in links {
            let loss = Loss::uniform(loss);
            network
                .inject(Fault::SetLinkFaults(link, LinkFaults { loss, ..LinkFaults::default() }));
        }
        (0..32).for_each(|host| send(&mut network, host, (host + 11) % 32, 0..50, 64));
        network.run_until(ns(1_000_000));
        (network.trace_hash(), network.application.received.len())
    };
    let base = run(5, 100_000);
    assert_eq!(base, run(5, 100_000));
    assert_ne!(base.0, run(6, 100_000).0, "another seed gives another history");
    assert_ne!(base.0, run(5, 110_000).0, "another loss rate gives another history");
    assert_eq!(run(5, 0).1, 32 * 50);
}

#[test]
fn trace_keeps_the_last_lines() {
    let config = Config { trace_lines_max: 3, ..Config::default() };
    let mut network = network(star(), config, 1);
    send(&mut network, 0, 1, 0..5, 64);
    network.run_until(ns(10_000));
    let lines: Vec<&str> = network.trace_lines().collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[2].contains("node=1") && lines[2].contains("Data 0->1 psn=4"), "{lines:?}");
}

/// Returns the frames that host 1 receives from host 0, messages and hop-only frames, and the
/// frames that host 2 receives from the switch.
fn received_with(off_chip_cpu: Option<OffChipCpu>) -> [Vec<(u64, u32)>; 3] {
    let mut network = network(star(), Config { off_chip_cpu, ..Config::default() }, 1);
    send(&mut network, 0, 1, 0..3, 0);
    send(&mut network, 0, 1, HOP_ONLY..HOP_ONLY + 3, 0);
    send(&mut network, 3, 2, 7..9, 0);
    network.run_until(ns(100_000));
    let of = |host, is_for_neighbours| {
        let received = network.application.received.iter();
        received
            .filter(|(_, node, _, number)| {
                *node == NodeId(host) && (*number >= HOP_ONLY) == is_for_neighbours
            })
            .map(|(at, _, _, number)| (at.as_ns(), *number))
            .collect::<Vec<_>>()
    };
    [of(1, false), of(1, true), of(2, false)]
}

#[test]
fn hop_only_frames_detour_through_the_off_chip_cpu() {
    let [messages, hop_only, written] = received_with(None);
    let off_chip_cpu =
        OffChipCpu { to_cpu_ns: 5_000, receive_ns: 900, backlog_ns_max: 10_000, ..FREE_CPU };
    let [passed, late, same] = received_with(Some(off_chip_cpu));
    assert_eq!((&passed, &same), (&messages, &written));
    // The CPU processes one frame after the other.
    let times = |of: &[(u64, u32)]| of.iter().map(|(at, _)| *at).collect::<Vec<_>>();
    let (before, after) = (times(&hop_only), times(&late));
    assert_eq!(after.len(), 3);
    assert_eq!(after[0], before[0] + 5_900);
    assert_eq!((after[1] - after[0], after[2] - after[1]), (900, 900));
    let off_chip_cpu =
        OffChipCpu { to_chip_ns: 3_000, send_ns: 400, backlog_ns_max: 10_000, ..FREE_CPU };
    let [passed, delayed, late] = received_with(Some(off_chip_cpu));
    assert_eq!(passed, messages);
    assert!(times(&delayed)[0] > before[0], "receiving waits while the CPU writes frames");
    let (before, after) = (times(&written), times(&late));
    assert_eq!(after, [before[0] + 3_400, before[0] + 3_800]);
}

#[test]
fn overloaded_or_crashed_off_chip_cpu_drops_frames() {
    let off_chip_cpu = OffChipCpu { receive_ns: 1_000, backlog_ns_max: 4_500, ..FREE_CPU };
    let mut network =
        network(star(), Config { off_chip_cpu: Some(off_chip_cpu), ..Config::default() }, 1);
    send(&mut network, 0, 1, HOP_ONLY..HOP_ONLY + 50, 0);
    network.run_until(ns(2_000));
    network.inject(Fault::Crash(NodeId(3)));
    network.inject(Fault::Restart(NodeId(3)));
    network.run_until(ns(100_000));
    let (drops, received) = (network.stats().drops, numbers(&network, 1).len());
    // The CPU's backlog admits five frames; the first was forwarded and is on the link.
    assert_eq!((drops.ring_full, drops.node_down, drops.link_down, received), (45, 4, 1, 0));
}
