//! Crashes, pauses, clocks, CPUs and determinism.

#[allow(dead_code)]
mod toy;

use onepipe_base::Mono;
use onepipe_sim_network::{Aside, ClockConfig, Config, CpuConfig, Fault, LinkFaults, Loss, NodeId};
use onepipe_topology::Shape;
use toy::{FOR_NEIGHBOURS, ns, numbers, send, world};

const NO_ASIDE: Aside =
    Aside { there_ns: 0, back_ns: 0, receive_ns: 0, send_ns: 0, backlog_ns_max: 0 };

fn star() -> Shape {
    Shape::star(3).expect("a star of three hosts is valid")
}

#[test]
fn a_crash_loses_state_and_alarms_and_a_restart_is_a_new_life() {
    let mut world = world(star(), Config::default(), 1);
    world.command(NodeId(1), |mut at, toy, _| {
        at.alarm(20_000_000, 5);
        toy.timer = Some(at.now.mono.after_ns(30_000));
    });
    world.schedule(ns(10_000), Fault::Crash(NodeId(1)));
    world.schedule(ns(15_000), Fault::Restart(NodeId(1)));
    world.run_until(ns(12_000));
    send(&mut world, 0, 1, 0..4, 64);
    world.run_until(ns(40_000));
    assert_eq!(world.stats().drops.node_down, 4);
    assert_eq!(world.application.crashes, [NodeId(1)]);
    assert_eq!(world.application.lives.last(), Some(&(NodeId(1), 1)));
    assert!(world.application.alarms.is_empty());
    assert!(world.machine(NodeId(1)).expect("the node has restarted").rang.is_empty());
    send(&mut world, 0, 1, 4..8, 64);
    world.run_until(ns(50_000));
    assert_eq!(numbers(&world, 1), [4, 5, 6, 7]);
}

#[test]
fn frames_wait_while_a_host_is_paused() {
    let mut world = world(star(), Config::default(), 1);
    world.inflict(Fault::Pause(NodeId(1), 50_000));
    send(&mut world, 0, 1, 0..4, 64);
    world.run_until(ns(49_999));
    assert_eq!(numbers(&world, 1), Vec::<u32>::new());
    world.run_until(ns(50_000));
    assert_eq!(numbers(&world, 1), [0, 1, 2, 3]);
}

#[test]
fn a_slow_cpu_spaces_frames_and_its_ring_is_bounded() {
    let cpu = CpuConfig { receive_ns: 1_000, send_ns: 10, poll_ns: 100, ring_frames_max: 16 };
    let mut world = world(star(), Config { cpu, ..Config::default() }, 1);
    send(&mut world, 0, 1, 0..100, 64);
    world.run_until(ns(1_000_000));
    let times: Vec<u64> = world.application.heard.iter().map(|(at, ..)| at.as_ns()).collect();
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= 1_000), "{times:?}");
    let dropped = world.stats().drops.ring_full;
    assert!(dropped > 50 && dropped + times.len() as u64 == 100, "{dropped} dropped");
}

#[test]
fn timers_follow_the_drifting_local_clock_and_steps_do_not_touch_them() {
    let clocks = ClockConfig { offset_ns_max: 1_000_000, drift_ppb_max: 500_000 };
    let mut world = world(star(), Config { clocks, ..Config::default() }, 3);
    let mut deadline = Mono::from_ns(0);
    world.command(NodeId(0), |at, toy, _| {
        deadline = at.now.mono.after_ns(1_000_000);
        toy.timer = Some(deadline);
    });
    world.schedule(ns(1_000), Fault::StepClock(NodeId(0), 3_600_000_000_000));
    let before = world.clock(NodeId(0)).read(world.now()).sync;
    world.run_until(ns(2_000_000));
    assert_eq!(world.machine(NodeId(0)).expect("the node is up").rang, [deadline]);
    let after = world.clock(NodeId(0)).read(world.now()).sync;
    assert_eq!(after.since_ns(before) / 1_000_000_000, 3_600);
}

#[test]
fn one_seed_is_one_history() {
    let run = |seed: u64, loss| {
        let clocks = ClockConfig { offset_ns_max: 1_000, drift_ppb_max: 50_000 };
        let config = Config { clocks, ..Config::default() };
        let mut world = world(Shape::testbed(), config, seed);
        let links: Vec<_> = world.links().map(|(link, ..)| link).collect();
        for link in links {
            let loss = Loss::every(loss);
            world.inflict(Fault::Switches(link, LinkFaults { loss, ..LinkFaults::default() }));
        }
        (0..32).for_each(|host| send(&mut world, host, (host + 11) % 32, 0..50, 64));
        world.run_until(ns(1_000_000));
        (world.trace_hash(), world.application.heard.len())
    };
    let base = run(5, 100_000);
    assert_eq!(base, run(5, 100_000));
    assert_ne!(base.0, run(6, 100_000).0, "another seed gives another history");
    assert_ne!(base.0, run(5, 110_000).0, "another loss rate gives another history");
    assert_eq!(run(5, 0).1, 32 * 50);
}

#[test]
fn the_tail_of_the_history_can_be_read() {
    let config = Config { trace_lines_max: 3, ..Config::default() };
    let mut world = world(star(), config, 1);
    send(&mut world, 0, 1, 0..5, 64);
    world.run_until(ns(10_000));
    let lines: Vec<&str> = world.trace_lines().collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[2].contains("node=1") && lines[2].contains("Data 0->1 psn=4"), "{lines:?}");
}

/// Returns the frames that host 1 receives from host 0, messages and hop-only frames, and the
/// frames that host 2 receives from the switch.
fn heard_aside(aside: Option<Aside>) -> [Vec<(u64, u32)>; 3] {
    let mut world = world(star(), Config { aside, ..Config::default() }, 1);
    send(&mut world, 0, 1, 0..3, 0);
    send(&mut world, 0, 1, FOR_NEIGHBOURS..FOR_NEIGHBOURS + 3, 0);
    send(&mut world, 3, 2, 7..9, 0);
    world.run_until(ns(100_000));
    let of = |host, is_for_neighbours| {
        let heard = world.application.heard.iter();
        heard
            .filter(|(_, node, _, number)| {
                *node == NodeId(host) && (*number >= FOR_NEIGHBOURS) == is_for_neighbours
            })
            .map(|(at, _, _, number)| (at.as_ns(), *number))
            .collect::<Vec<_>>()
    };
    [of(1, false), of(1, true), of(2, false)]
}

#[test]
fn what_speaks_of_links_takes_its_way_to_the_processor_and_messages_pass() {
    let [messages, spoken, written] = heard_aside(None);
    let aside = Aside { there_ns: 5_000, receive_ns: 900, backlog_ns_max: 10_000, ..NO_ASIDE };
    let [passed, late, same] = heard_aside(Some(aside));
    assert_eq!((&passed, &same), (&messages, &written));
    // The CPU processes one frame after the other.
    let times = |of: &[(u64, u32)]| of.iter().map(|(at, _)| *at).collect::<Vec<_>>();
    let (before, after) = (times(&spoken), times(&late));
    assert_eq!(after.len(), 3);
    assert_eq!(after[0], before[0] + 5_900);
    assert_eq!((after[1] - after[0], after[2] - after[1]), (900, 900));
    let aside = Aside { back_ns: 3_000, send_ns: 400, backlog_ns_max: 10_000, ..NO_ASIDE };
    let [passed, held_up, late] = heard_aside(Some(aside));
    assert_eq!(passed, messages);
    assert!(times(&held_up)[0] > before[0], "receiving waits while the CPU writes frames");
    let (before, after) = (times(&written), times(&late));
    assert_eq!(after, [before[0] + 3_400, before[0] + 3_800]);
}

#[test]
fn a_processor_that_is_too_far_behind_loses_frames_and_one_that_crashes_all() {
    let aside = Aside { receive_ns: 1_000, backlog_ns_max: 4_500, ..NO_ASIDE };
    let mut world = world(star(), Config { aside: Some(aside), ..Config::default() }, 1);
    send(&mut world, 0, 1, FOR_NEIGHBOURS..FOR_NEIGHBOURS + 50, 0);
    world.run_until(ns(2_000));
    world.inflict(Fault::Crash(NodeId(3)));
    world.inflict(Fault::Restart(NodeId(3)));
    world.run_until(ns(100_000));
    let (drops, heard) = (world.stats().drops, numbers(&world, 1).len());
    // The CPU's backlog admits five frames; the first was forwarded and is on the link.
    assert_eq!((drops.ring_full, drops.node_down, drops.link_down, heard), (45, 4, 1, 0));
}
