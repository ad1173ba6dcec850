//! Links that come up, time out, leave and come back.

use crate::harness;

use harness::{at, beacon_from, beacons, both, events, frame, join, pass, put, sent, star};
use onepipe_base::{Machine, Port, Verdict};
use onepipe_switch::{Config, Eager, Switch, SwitchEvent};
use onepipe_topology::{Route, Tree};
use onepipe_wire::{Flags, Opcode};

fn new(config: Config) -> Switch {
    Switch::new(config).expect("a valid configuration")
}

//= spec/ordering.md#R10
#[test]
fn two_ports_get_each_others_promise() {
    let mut switch = new(star(2));
    join(&mut switch, at(100), 0, 7, both(90));
    join(&mut switch, at(100), 1, 8, both(95));
    assert_eq!(pass(&mut switch, at(110), 0, frame(Opcode::Ack, 7, 8, both(105))), (1, both(105)));
    assert_eq!(pass(&mut switch, at(111), 1, frame(Opcode::Ack, 8, 7, both(99))), (0, both(99)));
}

//= spec/ordering.md#R13
#[test]
fn join_is_answered_by_a_beacon_and_moves_no_barrier_back() {
    let mut switch = new(star(4));
    join(&mut switch, at(1_000), 0, 0, both(900));
    join(&mut switch, at(1_000), 1, 1, both(950));
    beacons(&mut switch, at(1_000));
    assert_eq!(pass(&mut switch, at(1_001), 0, frame(Opcode::Ack, 0, 1, both(960))).1, both(960));

    join(&mut switch, at(1_002), 2, 2, both(10));
    assert_eq!(
        beacons(&mut switch, at(1_002)),
        [(2, both(950))],
        "so that the process raises its timestamps"
    );
    let held = pass(&mut switch, at(1_003), 0, frame(Opcode::Ack, 0, 1, both(990)));
    assert_eq!(held, (1, both(960)), "held while the joiner catches up, never lowered");
    beacon_from(&mut switch, at(1_004), 2, both(980));
    let moved = pass(&mut switch, at(1_005), 0, frame(Opcode::Ack, 0, 1, both(995)));
    assert_eq!(moved, (1, both(980)));
}

//= spec/ordering.md#R15
#[test]
fn link_times_out_and_comes_back() {
    let mut switch = new(Config { link_timeout_ns: 1_000, ..star(3) });
    for port in 0..3 {
        join(&mut switch, at(0), port, port.into(), both(0));
    }
    assert_eq!(events(&mut switch), [0, 1, 2].map(|port| SwitchEvent::LinkJoined(Port(port))));
    for time in [500, 1_000] {
        beacon_from(&mut switch, at(time), 0, both(time));
        beacon_from(&mut switch, at(time), 1, both(time));
    }
    let stalled = pass(&mut switch, at(1_000), 0, frame(Opcode::Ack, 0, 1, both(1_000)));
    assert_eq!(stalled, (1, both(0)), "the idle link holds the barrier");
    switch.handle_timeout(at(1_000));
    assert_eq!(events(&mut switch), [], "idle for exactly the timeout is not too long");

    assert_eq!(switch.poll_timeout(), Some(at(1_001).mono));
    switch.handle_timeout(at(1_001));
    assert_eq!(events(&mut switch), [SwitchEvent::LinkLost(Port(2))]);
    assert!(!switch.is_live(Port(2)));
    assert_eq!(switch.stats().links_lost, 1);
    let freed = pass(&mut switch, at(1_002), 0, frame(Opcode::Ack, 0, 1, both(1_002)));
    assert_eq!(freed, (1, both(1_002)));

    beacon_from(&mut switch, at(1_100), 2, both(700));
    assert_eq!(events(&mut switch), [SwitchEvent::LinkJoined(Port(2))]);
    let held = pass(&mut switch, at(1_101), 0, frame(Opcode::Ack, 0, 1, both(1_101)));
    assert_eq!(held, (1, both(1_002)));
}

//= spec/failure.md#R16
//= spec/ordering.md#R38
#[test]
fn leave_removes_link_and_route_at_once() {
    let mut switch = new(star(3));
    for port in 0..3 {
        join(&mut switch, at(0), port, port.into(), both(10));
    }
    events(&mut switch);
    assert_eq!(put(&mut switch, at(1), 2, frame(Opcode::Leave, 2, 0, both(20))), Verdict::Consumed);
    assert_eq!(events(&mut switch), [SwitchEvent::LinkLeft(Port(2))]);
    assert_eq!(pass(&mut switch, at(2), 0, frame(Opcode::Ack, 0, 1, both(50))), (1, both(50)));
    assert_eq!(put(&mut switch, at(3), 0, frame(Opcode::Ack, 0, 2, both(51))), Verdict::Dropped);
    assert_eq!((switch.stats().leaves_received, switch.stats().dropped_unknown), (1, 1));

    let again = put(&mut switch, at(4), 2, frame(Opcode::Leave, 2, 0, both(20)));
    assert_eq!((again, switch.stats().leaves_received), (Verdict::Consumed, 1));
    assert_eq!(events(&mut switch), []);
}

#[test]
fn route_follows_a_process_to_its_new_port() {
    let mut switch = new(star(3));
    join(&mut switch, at(0), 0, 0, both(10));
    join(&mut switch, at(0), 1, 5, both(10));
    join(&mut switch, at(1), 2, 5, both(20));
    assert_eq!(pass(&mut switch, at(2), 0, frame(Opcode::Ack, 0, 5, both(30))).0, 2);
    let late = put(&mut switch, at(3), 1, frame(Opcode::Leave, 5, 0, both(15)));
    assert_eq!(late, Verdict::Dropped, "a Leave from its previous port");
    assert_eq!(pass(&mut switch, at(4), 0, frame(Opcode::Ack, 0, 5, both(40))).0, 2);
}

#[test]
fn learns_routes_from_any_frame() {
    let mut switch = new(star(3));
    assert_eq!(put(&mut switch, at(0), 0, frame(Opcode::Beacon, 0, 0, both(0))), Verdict::Consumed);
    let unknown = put(&mut switch, at(1), 1, frame(Opcode::Ack, 1, 2, both(1)));
    assert_eq!(unknown, Verdict::Dropped);
    assert_eq!(pass(&mut switch, at(2), 0, frame(Opcode::Ack, 0, 1, both(2))).0, 1);
    assert_eq!(pass(&mut switch, at(3), 1, frame(Opcode::Ack, 1, 0, both(3))).0, 0);
    beacon_from(&mut switch, at(4), 2, both(4));
    let unknown = put(&mut switch, at(5), 1, frame(Opcode::Ack, 1, 2, both(5)));
    assert_eq!(unknown, Verdict::Dropped, "a switch's beacon names no process");
}

#[test]
fn unplugged_port_starts_afresh() {
    let mut switch = new(star(3));
    for port in 0..3 {
        join(&mut switch, at(0), port, port.into(), both(1_000));
    }
    beacons(&mut switch, at(0));
    events(&mut switch);
    switch.unplug(Port(1), onepipe_base::Cause::Left);
    switch.unplug(Port(9), onepipe_base::Cause::Left);
    assert_eq!(events(&mut switch), [SwitchEvent::LinkLeft(Port(1))]);
    assert_eq!(put(&mut switch, at(1), 0, frame(Opcode::Ack, 0, 1, both(1_001))), Verdict::Dropped);
    join(&mut switch, at(2), 1, 9, both(5));
    assert_eq!(
        pass(&mut switch, at(3), 0, frame(Opcode::Ack, 0, 9, both(1_003))),
        (1, both(1_000))
    );
}

#[test]
fn misplaced_joins_are_counted_and_not_learned() {
    let mut switch = new(star(2));
    let beyond = put(&mut switch, at(0), 0, frame(Opcode::Join, 64, 0, both(0)));
    assert_eq!((beyond, switch.stats().dropped_misplaced), (Verdict::Dropped, 1));

    let tree =
        Tree { base: 4, span: 2, child_span: 1, links_per_child: 1, host_span: 1, processes: 8 };
    let mut switch = new(Config { start_wait_ns: 0, ..Config::new(2, 1, Route::Tree(tree)) });
    for (port, process, verdict) in [
        (0, 4, Verdict::Consumed),
        (0, 5, Verdict::Dropped),
        (1, 0, Verdict::Dropped),
        (2, 4, Verdict::Dropped),
    ] {
        let got = put(&mut switch, at(0), port, frame(Opcode::Join, process, 0, both(0)));
        assert_eq!(got, verdict, "process {process} behind port {port}");
    }
}

//= spec/failure.md#R17
#[test]
fn stalled_switch_does_not_time_out_its_neighbours() {
    let mut switch = new(Config { link_timeout_ns: 1_000, ..star(2) });
    join(&mut switch, at(0), 0, 0, both(0));
    join(&mut switch, at(0), 1, 1, both(0));
    events(&mut switch);
    switch.handle_timeout(at(50_000));
    assert_eq!(events(&mut switch), [], "their frames are still to be read");
    beacon_from(&mut switch, at(50_000), 0, both(49_900));
    switch.handle_timeout(switch_due(&switch));
    assert_eq!(events(&mut switch), [SwitchEvent::LinkLost(Port(1))], "this one sent nothing");
}

//= spec/failure.md#R17
#[test]
fn no_link_times_out_within_a_timeout_after_a_stall() {
    let mut switch = new(Config { link_timeout_ns: 1_000, ..star(2) });
    join(&mut switch, at(0), 0, 0, both(0));
    join(&mut switch, at(0), 1, 1, both(0));
    events(&mut switch);
    switch.handle_stall(at(950));
    switch.handle_timeout(at(1_949));
    assert_eq!(events(&mut switch), []);
    switch.handle_timeout(at(1_951));
    assert_eq!(events(&mut switch).len(), 2);
}

fn switch_due(switch: &Switch) -> onepipe_base::Now {
    at(switch.poll_timeout().expect("a live link is watched").as_ns())
}

/// A spine of two racks with bundles of two links, and two links to cores.
fn spine() -> Switch {
    spine_below(2)
}

fn spine_below(cores: u16) -> Switch {
    let tree =
        Tree { base: 0, span: 4, child_span: 2, links_per_child: 2, host_span: 1, processes: 8 };
    new(Config {
        start_wait_ns: 0,
        link_timeout_ns: 1_000,
        eager_beacons: Eager::Never,
        ..Config::new(4, cores, Route::Tree(tree))
    })
}

#[test]
fn flow_moves_to_a_live_link_of_the_bundle() {
    let mut switch = spine();
    (0..6).for_each(|port| beacon_from(&mut switch, at(0), port, both(0)));
    let (nominal, _) = pass(&mut switch, at(10), 0, frame(Opcode::Ack, 0, 7, both(10)));
    assert!(nominal == 4 || nominal == 5);
    (0..6)
        .filter(|port| *port != nominal)
        .for_each(|port| beacon_from(&mut switch, at(900), port, both(900)));
    switch.handle_timeout(at(1_001));
    let (other, _) = pass(&mut switch, at(1_002), 0, frame(Opcode::Ack, 0, 7, both(1_002)));
    assert_eq!(other, 9 - nominal);
    beacon_from(&mut switch, at(1_003), nominal, both(1_003));
    let (back, _) = pass(&mut switch, at(1_004), 0, frame(Opcode::Ack, 0, 7, both(1_004)));
    assert_eq!(back, nominal);
}

#[test]
fn flows_pass_dead_links_to_the_only_live_one() {
    for live in 4..8 {
        let mut switch = spine_below(4);
        (0..8).for_each(|port| beacon_from(&mut switch, at(0), port, both(0)));
        (0..4).chain([live]).for_each(|port| beacon_from(&mut switch, at(900), port, both(900)));
        switch.handle_timeout(at(1_001));
        for (src, dst) in [(0, 4), (1, 5), (2, 6), (3, 7), (0, 7), (1, 6)] {
            let ack = frame(Opcode::Ack, src, dst, both(1_002));
            let input = src as u16;
            assert_eq!(pass(&mut switch, at(1_002), input, ack).0, live, "{src} to {dst}");
        }
    }
}

//= spec/ordering.md#R9
#[test]
fn frames_never_turn_up_again_or_go_back() {
    let mut switch = spine();
    (0..6).for_each(|port| beacon_from(&mut switch, at(0), port, both(0)));
    for (input, dst) in [(4, 7), (5, 6), (0, 1), (1, 0), (3, 2)] {
        let verdict = put(&mut switch, at(1), input, frame(Opcode::Ack, 9, dst, both(1)));
        assert_eq!(verdict, Verdict::Dropped, "from port {input} to process {dst}");
    }
    assert_eq!(switch.stats().dropped_back, 5);
    let unknown = put(&mut switch, at(1), 0, frame(Opcode::Ack, 0, 8, both(1)));
    assert_eq!((unknown, switch.stats().dropped_unknown), (Verdict::Dropped, 1));
}

#[test]
fn unfed_uplinks_get_a_beacon_at_once() {
    let mut switch = spine();
    (0..6).for_each(|port| beacon_from(&mut switch, at(0), port, both(0)));
    (4..6).for_each(|port| beacon_from(&mut switch, at(900), port, both(900)));
    switch.handle_timeout(at(1_001));
    let promises = |switch: &mut Switch, now| {
        let sent = sent(switch, at(now));
        sent.iter().map(|sent| (sent.port, sent.header.has(Flags::UNFED))).collect::<Vec<_>>()
    };
    assert_eq!(promises(&mut switch, 1_001), [(4, true), (5, true)], "no beacon instant yet");
    switch.handle_timeout(at(3_000));
    beacon_from(&mut switch, at(3_000), 4, both(3_000));
    let ports = [(0, false), (1, false), (2, false), (3, false), (4, true), (5, true)];
    assert_eq!(
        promises(&mut switch, 3_000),
        ports,
        "roots must not let the unfed link hold the barrier"
    );
}
