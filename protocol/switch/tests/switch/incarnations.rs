//! Instances on a link, and what happens to commits when they change: switches in a fabric with a
//! controller.

use crate::harness;

use harness::{
    OWN, at, beacon, both, events, frame_with_hops, guarded, instance_of, of_link, pass, ports_of,
    process, put, run, sent, ts,
};
use onepipe_base::{Address, Instance, Machine, Port, Promises, SwitchId, Verdict};
use onepipe_switch::{Config, Switch, SwitchEvent};
use onepipe_topology::{Route, Tree};
use onepipe_wire::{Flags, HEADER_LEN, HOPS_MAX, Header, Opcode, seal_with_hops};

fn new(config: Config) -> Switch {
    let mut switch = Switch::new(config).expect("a valid configuration");
    switch.handle_timeout(at(0));
    switch
}

fn promises_of_both(barrier: u64, commit: u64) -> Promises {
    Promises { barrier: ts(barrier), commit: ts(commit) }
}

/// Processes 0, 1, … with incarnation 1 at as many ports, all two-way.
fn set_up_links(config: Config, promises: Promises) -> Switch {
    let ports = config.lower_ports;
    let mut switch = new(config);
    for port in 0..ports {
        let confirmed = (process(port.into(), 1), Some(OWN));
        assert_eq!(beacon(&mut switch, at(0), port, confirmed, promises), Verdict::Consumed);
    }
    events(&mut switch);
    sent(&mut switch, at(0));
    switch
}

/// Returns what port `to` gets now: by a frame of process 9, which no barrier counts.
fn advertised_to(switch: &mut Switch, now: u64, to: u16) -> Promises {
    let mut switch = switch.clone();
    let from = u16::from(to == 0);
    let bytes = frame_with_hops(Opcode::Ack, 9, to.into(), both(0), HOPS_MAX - 1);
    let (output, promises) = pass(&mut switch, at(now), from, bytes);
    assert_eq!(output, to);
    promises
}

fn frozen(port: u16, why: fn(Port) -> SwitchEvent) -> [SwitchEvent; 2] {
    [why(Port(port)), SwitchEvent::LinkFrozen(Port(port))]
}

#[test]
fn commit_needs_a_two_way_link() {
    let mut switch = set_up_links(guarded(2), promises_of_both(50, 40));
    let unconfirmed = process(1, 2);
    let mut switch = {
        switch.unplug(Port(1), onepipe_base::Cause::Left);
        events(&mut switch);
        beacon(&mut switch, at(1), 1, (unconfirmed, None), promises_of_both(60, 55));
        switch
    };
    let promises = advertised_to(&mut switch, 2, 1);
    assert_eq!(promises.barrier, ts(50), "the barrier is advertised");
    assert!(promises.commit < ts(0), "the commit is not advertised: {promises:?}");
    let previous = Instance { incarnation: onepipe_base::Incarnation(4), ..OWN };
    beacon(&mut switch, at(2), 1, (unconfirmed, Some(previous)), promises_of_both(61, 56));
    assert!(
        advertised_to(&mut switch, 2, 1).commit < ts(0),
        "the peer names a previous incarnation"
    );
    beacon(&mut switch, at(3), 1, (unconfirmed, Some(OWN)), promises_of_both(62, 57));
    assert_eq!(advertised_to(&mut switch, 3, 1), promises_of_both(50, 40));
}

//= spec/failure.md#R37
#[test]
fn unconfirmed_link_gets_beacons_even_when_busy() {
    let mut switch = set_up_links(guarded(2), both(0));
    events(&mut switch);
    let beacons = |switch: &mut Switch, end| ports_of(&run(switch, end), Opcode::Beacon);
    let busy = |switch: &mut Switch, now| {
        for (from, to) in [(0, 1), (1, 0)] {
            let bytes = frame_with_hops(Opcode::Ack, from, to, both(now), HOPS_MAX - 1);
            pass(switch, at(now), from as u16, bytes);
        }
    };
    busy(&mut switch, 2_000);
    assert_eq!(beacons(&mut switch, 3_000), []);
    beacon(&mut switch, at(3_500), 0, (process(0, 2), None), both(3_500));
    busy(&mut switch, 4_000);
    assert_eq!(beacons(&mut switch, 6_000), [0], "process 0 is unconfirmed");
    beacon(&mut switch, at(6_500), 0, (process(0, 2), Some(OWN)), both(6_500));
    let mut reminded = Vec::new();
    for instant in 3..=34 {
        busy(&mut switch, instant * 3_000 - 10);
        reminded.extend(beacons(&mut switch, instant * 3_000));
    }
    assert_eq!(reminded, [0, 1, 0, 1], "every sixteenth instant in any case");
}

//= spec/failure.md#R13
#[test]
fn dead_link_leaves_the_barrier_and_holds_commits() {
    let mut switch = set_up_links(guarded(3), promises_of_both(50, 40));
    run(&mut switch, 3_000);
    for (port, id) in [(0, 0), (1, 1)] {
        let confirmed = (process(id, 1), Some(OWN));
        beacon(&mut switch, at(29_000), port, confirmed, promises_of_both(29_000, 28_000));
    }
    run(&mut switch, 40_000);
    assert_eq!(events(&mut switch), frozen(2, SwitchEvent::LinkLost));
    assert!(!switch.is_live(Port(2)));
    assert_eq!(advertised_to(&mut switch, 40_000, 1), promises_of_both(29_000, 40));
    assert_eq!(switch.stats().links_frozen, 1);
}

//= spec/failure.md#R16
#[test]
fn leave_freezes_the_last_promise() {
    let mut switch = set_up_links(guarded(3), promises_of_both(50, 40));
    for port in [0, 1] {
        beacon(
            &mut switch,
            at(90),
            port,
            (process(port.into(), 1), Some(OWN)),
            promises_of_both(90, 90),
        );
    }
    let leave = of_link(Opcode::Leave, process(2, 1), None, promises_of_both(80, 70));
    assert_eq!(put(&mut switch, at(91), 2, leave), Verdict::Consumed);
    assert_eq!(events(&mut switch), frozen(2, SwitchEvent::LinkLeft));
    assert_eq!(advertised_to(&mut switch, 92, 1), promises_of_both(90, 70));
}

#[test]
fn reported_loss_needs_no_timeout() {
    let mut switch = set_up_links(guarded(2), promises_of_both(50, 40));
    switch.mark_link_lost(Port(1));
    switch.mark_link_lost(Port(7));
    assert_eq!(events(&mut switch), frozen(1, SwitchEvent::LinkLost));
    let mut dropping = Switch::new(harness::star(2)).expect("valid");
    harness::join(&mut dropping, at(0), 1, 1, both(0));
    events(&mut dropping);
    dropping.mark_link_lost(Port(1));
    assert_eq!(events(&mut dropping), [SwitchEvent::LinkLost(Port(1))]);
}

//= spec/failure.md#R12
#[test]
fn new_incarnation_freezes_the_previous_one() {
    let mut switch = set_up_links(guarded(2), promises_of_both(50, 40));
    let mut bytes = frame_with_hops(Opcode::Ack, 1, 0, promises_of_both(900, 800), HOPS_MAX);
    // Frames of the harness have incarnation 1; incarnation 2 sends a beacon, and data afterwards.
    assert_eq!(switch.handle_frame(at(5), Port(1), &mut bytes), Verdict::Forward(Port(0)));
    beacon(&mut switch, at(6), 1, (process(1, 2), None), promises_of_both(2_000, 1_900));
    let [reborn, held] = frozen(1, SwitchEvent::LinkRestarted);
    assert_eq!(events(&mut switch), [reborn, held, SwitchEvent::LinkJoined(Port(1))]);
    assert_eq!(
        advertised_to(&mut switch, 7, 0),
        promises_of_both(2_000, 800),
        "the last commit of the previous incarnation is held"
    );
    let stale = frame_with_hops(Opcode::Ack, 1, 0, promises_of_both(9_000, 9_000), HOPS_MAX);
    assert_eq!(put(&mut switch, at(8), 1, stale), Verdict::Dropped);
    assert_eq!(
        beacon(&mut switch, at(8), 1, (process(1, 1), Some(OWN)), both(9_000)),
        Verdict::Dropped
    );
    assert_eq!(switch.stats().dropped_stale, 2);
    assert_eq!(advertised_to(&mut switch, 9, 0), promises_of_both(2_000, 800));
}

#[test]
fn data_frame_reveals_a_new_incarnation() {
    // Frames of the harness have incarnation 1; make the known incarnation an earlier one.
    let mut switch = set_up_links(guarded(2), promises_of_both(50, 40));
    beacon(&mut switch, at(5), 0, (process(0, 0), None), both(9));
    assert_eq!(switch.stats().dropped_stale, 1);
    switch.unplug(Port(0), onepipe_base::Cause::Left);
    beacon(&mut switch, at(6), 0, (process(0, 0), Some(OWN)), promises_of_both(60, 55));
    events(&mut switch);
    let bytes = frame_with_hops(Opcode::Ack, 0, 1, promises_of_both(3_000, 2_900), HOPS_MAX);
    let (_, promises) = pass(&mut switch, at(7), 0, bytes);
    let [reborn, held] = frozen(0, SwitchEvent::LinkRestarted);
    assert_eq!(events(&mut switch), [reborn, held, SwitchEvent::LinkJoined(Port(0))]);
    assert_eq!(promises, promises_of_both(3_000, 40), "40: held for the unplugged peer");
}

//= spec/failure.md#R11
#[test]
fn one_way_link_is_down_until_both_ends_know() {
    let mut switch = set_up_links(guarded(2), promises_of_both(50, 40));
    let one_way = (process(1, 1), None);
    beacon(&mut switch, at(10), 1, one_way, promises_of_both(80, 80));
    assert_eq!(events(&mut switch), frozen(1, SwitchEvent::LinkOneWay));
    let answer = sent(&mut switch, at(10));
    let to_it: Vec<_> = answer.iter().filter(|sent| sent.port == 1).collect();
    assert_eq!(to_it.len(), 1, "notified at once that it is not received, either");
    assert_eq!((to_it[0].header.sender(), to_it[0].header.peer()), (Some(OWN), None));
    beacon(&mut switch, at(11), 1, one_way, promises_of_both(90, 90));
    let passing = frame_with_hops(Opcode::Ack, 1, 0, promises_of_both(95, 95), HOPS_MAX);
    let (_, promises) = pass(&mut switch, at(11), 1, passing);
    assert_eq!(
        (promises, switch.is_live(Port(1))),
        (both(50).min(promises_of_both(50, 40)), false)
    );
    assert_eq!(switch.stats().ignored, 3);
    beacon(&mut switch, at(12), 1, (process(1, 1), Some(OWN)), promises_of_both(100, 100));
    assert_eq!(events(&mut switch), [SwitchEvent::LinkJoined(Port(1))]);
    beacon(&mut switch, at(13), 0, (process(0, 1), Some(OWN)), promises_of_both(100, 100));
    assert_eq!(advertised_to(&mut switch, 14, 0), promises_of_both(100, 40));
}

//= spec/failure.md#R38
#[test]
fn lost_link_returns_after_the_peer_noticed() {
    let mut switch = set_up_links(guarded(2), promises_of_both(50, 40));
    switch.mark_link_lost(Port(1));
    events(&mut switch);
    beacon(&mut switch, at(1), 1, (process(1, 1), Some(OWN)), promises_of_both(60, 60));
    assert_eq!(events(&mut switch), [], "the peer does not know yet");
    let advertised_to: Vec<_> = run(&mut switch, 3_000);
    let echoes: Vec<_> = advertised_to.iter().filter(|sent| sent.port == 1).collect();
    assert_eq!(echoes.len(), 1, "it gets a beacon at the next instant");
    assert_eq!(echoes[0].header.peer(), None);
    let silent = ports_of(&run(&mut switch.clone(), 120_000), Opcode::Beacon);
    assert!(silent.iter().filter(|port| **port == 1).count() <= 16, "beacons stop: {silent:?}");
    beacon(&mut switch, at(3_001), 1, (process(1, 1), None), promises_of_both(3_000, 3_000));
    assert_eq!(events(&mut switch), [SwitchEvent::LinkJoined(Port(1))]);
}

/// The peer at rest sends heartbeats, and needs several beacons to agree.
//= spec/ordering.md#R45
#[test]
fn lost_link_returns_at_the_fast_interval() {
    let on_demand = |switch: &mut Switch, now: u64, port: u16| {
        let own = process(port.into(), 1);
        let header = Header::hop_only(Opcode::Beacon, own, Some(OWN), both(now));
        let mut bytes = [0; HEADER_LEN];
        seal_with_hops(&mut bytes, header.flagged(Flags::ON_DEMAND), 0, 1);
        put(switch, at(now), port, bytes);
        sent(switch, at(now));
    };
    let heartbeat_ns = 100_000;
    let config = Config { heartbeat_interval_ns: heartbeat_ns, link_timeout_ns: 0, ..guarded(2) };
    let mut switch = set_up_links(config, promises_of_both(50, 40));
    (0..2).for_each(|port| on_demand(&mut switch, 1_000, port));
    switch.mark_link_lost(Port(1));
    let beacons = |switch: &mut Switch, until: u64| {
        run(switch, until).iter().filter(|sent| sent.port == 1).count() as u64
    };
    beacons(&mut switch, 200_000);
    on_demand(&mut switch, 200_000, 0);
    beacons(&mut switch, 300_000);
    assert!(beacons(&mut switch, 400_000) <= 2, "at rest, nothing is there");
    on_demand(&mut switch, 400_000, 1);
    assert!(!switch.is_live(Port(1)), "the peer does not know of the loss");
    let sent = beacons(&mut switch, 415_000);
    assert!((4..=6).contains(&sent), "{sent} beacons in five intervals");
    let last = beacons(&mut switch, 900_000);
    assert!(last <= 20, "nothing has followed, but {last} beacons leave");
}

#[test]
fn frames_from_unknown_senders_are_ignored() {
    let mut switch = new(guarded(2));
    let passed_on = frame_with_hops(Opcode::Ack, 1, 0, both(10), HOPS_MAX - 3);
    assert_eq!(
        put(&mut switch, at(1), 1, passed_on),
        Verdict::Dropped,
        "the port of process 0 is unknown"
    );
    assert!(!switch.is_live(Port(1)));
    let direct = frame_with_hops(Opcode::Ack, 1, 0, both(10), HOPS_MAX);
    put(&mut switch, at(2), 1, direct);
    assert!(switch.is_live(Port(1)), "a process's own frames name their sender");
    let no_instance =
        harness::frame(Opcode::Beacon, harness::NO_PROCESS, harness::NO_PROCESS, both(10));
    assert_eq!(put(&mut switch, at(3), 0, no_instance), Verdict::Dropped);
}

//= spec/failure.md#R39
#[test]
fn forged_sources_change_nothing() {
    let mut switch = set_up_links(guarded(2), promises_of_both(50, 40));
    let before = switch.clone();
    let other = instance_of(Address::Switch(SwitchId(7)), 9);
    for (instance, why) in [
        (process(3, 9), "another process where one is alive"),
        (other, "a switch where a process is alive"),
        (OWN, "this switch"),
        (instance_of(Address::Switch(SwitchId(1)), 77), "a later incarnation of this switch"),
        (process(harness::CONTROLLER, 1), "a controller makes no link live"),
    ] {
        let verdict = beacon(&mut switch, at(1), 1, (instance, Some(OWN)), both(9_000));
        assert_eq!(verdict, Verdict::Dropped, "{why}");
    }
    let direct = frame_with_hops(Opcode::Ack, 3, 0, both(9_000), HOPS_MAX);
    assert_eq!(put(&mut switch, at(1), 1, direct), Verdict::Dropped);
    assert_eq!((events(&mut switch), switch.stats().dropped_misplaced), (vec![], 6));
    assert_eq!(advertised_to(&mut switch, 2, 0), advertised_to(&mut before.clone(), 2, 0));

    let tree =
        Tree { base: 0, span: 2, child_span: 1, links_per_child: 1, host_span: 1, processes: 8 };
    let config = Config { lower_ports: 2, upper_ports: 1, route: Route::Tree(tree), ..guarded(2) };
    let mut switch = new(config);
    for (port, instance) in [(0, process(1, 1)), (2, process(1, 1)), (2, process(5, 1))] {
        let verdict = beacon(&mut switch, at(1), port, (instance, None), both(0));
        assert_eq!(verdict, Verdict::Dropped, "{instance:?} at port {port}");
    }
    assert_eq!(beacon(&mut switch, at(1), 1, (process(1, 1), None), both(0)), Verdict::Consumed);
}

#[test]
fn relayed_join_only_teaches_the_route() {
    let mut switch = new(guarded(3));
    let below = instance_of(Address::Switch(SwitchId(7)), 1);
    beacon(&mut switch, at(0), 0, (below, Some(OWN)), promises_of_both(50, 40));
    let join = frame_with_hops(Opcode::Join, 4, 0, both(0), 2);
    assert_eq!(put(&mut switch, at(1), 0, join), Verdict::Consumed);
    assert_eq!(put(&mut switch, at(1), 2, join), Verdict::Consumed);
    assert_eq!(events(&mut switch), [SwitchEvent::LinkJoined(Port(0))], "by its beacon");
    beacon(&mut switch, at(2), 1, (process(1, 1), Some(OWN)), promises_of_both(50, 40));
    assert_eq!(put(&mut switch, at(3), 0, join), Verdict::Consumed);
    let bytes = frame_with_hops(Opcode::Ack, 1, 4, both(60), HOPS_MAX);
    assert_eq!(pass(&mut switch, at(4), 1, bytes).0, 0);
}

//= spec/failure.md#R19
#[test]
fn control_frames_pass_unchanged_and_bring_up_no_link() {
    let mut switch = set_up_links(guarded(3), promises_of_both(50, 40));
    switch.unplug(Port(2), onepipe_base::Cause::Left);
    events(&mut switch);
    let relay = frame_with_hops(Opcode::Ping, 0, 1, both(7_777), HOPS_MAX);
    assert_eq!(pass(&mut switch, at(1), 2, relay), (1, both(7_777)));
    assert!(!switch.is_live(Port(2)));
    let back = frame_with_hops(Opcode::Pong, 1, 0, both(1), HOPS_MAX);
    assert_eq!(pass(&mut switch, at(2), 1, back).0, 2, "the route was learned");
    assert_eq!(advertised_to(&mut switch, 3, 1).barrier, ts(50));
    // A link that carries nothing else still gets its beacons.
    let due = run(&mut switch, 3_000);
    assert!(ports_of(&due, Opcode::Beacon).contains(&1));
}
