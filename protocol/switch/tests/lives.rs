//! Who is on a link, and what becomes of commits when that changes: fabrics with a controller.

mod rig;

use onepipe_base::{Address, Instance, Machine, Port, Promises, SwitchId, Verdict};
use onepipe_switch::{Config, Switch, SwitchEvent};
use onepipe_topology::{Route, Tree};
use onepipe_wire::{HOPS_MAX, Opcode};
use rig::{
    OWN, at, beacon, both, events, frame_with_hops, guarded, instance_of, of_link, pass, ports_of,
    process, put, run, sent, ts,
};

fn new(config: Config) -> Switch {
    let mut switch = Switch::new(config).expect("a valid configuration");
    switch.handle_timeout(at(0));
    switch
}

fn apart(barrier: u64, commit: u64) -> Promises {
    Promises { barrier: ts(barrier), commit: ts(commit) }
}

/// Processes 0, 1, … in life 1 at as many ports; all hear and are heard.
fn met(config: Config, promises: Promises) -> Switch {
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

/// What port `to` is told now: by a frame of process 9, which no barrier counts.
fn told(switch: &mut Switch, now: u64, to: u16) -> Promises {
    let mut switch = switch.clone();
    let from = u16::from(to == 0);
    let bytes = frame_with_hops(Opcode::Ack, 9, to.into(), both(0), HOPS_MAX - 1);
    let (output, said) = pass(&mut switch, at(now), from, bytes);
    assert_eq!(output, to);
    said
}

fn frozen(port: u16, why: fn(Port) -> SwitchEvent) -> [SwitchEvent; 2] {
    [why(Port(port)), SwitchEvent::LinkFrozen(Port(port))]
}

#[test]
fn a_commit_is_told_only_to_who_knows_which_life_tells_it() {
    let mut switch = met(guarded(2), apart(50, 40));
    let stranger = process(1, 2);
    let mut switch = {
        switch.unplug(Port(1));
        events(&mut switch);
        beacon(&mut switch, at(1), 1, (stranger, None), apart(60, 55));
        switch
    };
    let said = told(&mut switch, 2, 1);
    assert_eq!(said.barrier, ts(50), "the barrier is told");
    assert!(said.commit < ts(0), "the commit is not: {said:?}");
    let former = Instance { incarnation: onepipe_base::Incarnation(4), ..OWN };
    beacon(&mut switch, at(2), 1, (stranger, Some(former)), apart(61, 56));
    assert!(told(&mut switch, 2, 1).commit < ts(0), "it hears a former life");
    beacon(&mut switch, at(3), 1, (stranger, Some(OWN)), apart(62, 57));
    assert_eq!(told(&mut switch, 3, 1), apart(50, 40));
}

#[test]
fn a_link_that_is_not_confirmed_is_owed_a_beacon_busy_or_idle() {
    let mut switch = met(guarded(2), both(0));
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
    assert_eq!(beacons(&mut switch, 6_000), [0], "not sure whether process 0 has heard");
    beacon(&mut switch, at(6_500), 0, (process(0, 2), Some(OWN)), both(6_500));
    let mut reminded = Vec::new();
    for instant in 3..=34 {
        busy(&mut switch, instant * 3_000 - 10);
        reminded.extend(beacons(&mut switch, instant * 3_000));
    }
    assert_eq!(reminded, [0, 1, 0, 1], "every sixteenth instant in any case");
}

#[test]
fn a_dead_link_leaves_the_barrier_and_holds_commits() {
    let mut switch = met(guarded(3), apart(50, 40));
    run(&mut switch, 3_000);
    for (port, id) in [(0, 0), (1, 1)] {
        let confirmed = (process(id, 1), Some(OWN));
        beacon(&mut switch, at(29_000), port, confirmed, apart(29_000, 28_000));
    }
    run(&mut switch, 40_000);
    assert_eq!(events(&mut switch), frozen(2, SwitchEvent::LinkLost));
    assert!(!switch.is_live(Port(2)));
    assert_eq!(told(&mut switch, 40_000, 1), apart(29_000, 40));
    assert_eq!(switch.stats().links_frozen, 1);
}

#[test]
fn a_leave_is_frozen_with_the_last_promise() {
    let mut switch = met(guarded(3), apart(50, 40));
    for port in [0, 1] {
        beacon(&mut switch, at(90), port, (process(port.into(), 1), Some(OWN)), apart(90, 90));
    }
    let leave = of_link(Opcode::Leave, process(2, 1), None, apart(80, 70));
    assert_eq!(put(&mut switch, at(91), 2, leave), Verdict::Consumed);
    assert_eq!(events(&mut switch), frozen(2, SwitchEvent::LinkLeft));
    assert_eq!(told(&mut switch, 92, 1), apart(90, 70));
}

#[test]
fn who_is_lost_for_certain_waits_for_no_timeout() {
    let mut switch = met(guarded(2), apart(50, 40));
    switch.lose(Port(1));
    switch.lose(Port(7));
    assert_eq!(events(&mut switch), frozen(1, SwitchEvent::LinkLost));
    let mut dropping = Switch::new(rig::star(2)).expect("valid");
    rig::join(&mut dropping, at(0), 1, 1, both(0));
    events(&mut dropping);
    dropping.lose(Port(1));
    assert_eq!(events(&mut dropping), [SwitchEvent::LinkLost(Port(1))]);
}

#[test]
fn a_new_life_freezes_the_old_one_before_it_is_heard() {
    let mut switch = met(guarded(2), apart(50, 40));
    let mut bytes = frame_with_hops(Opcode::Ack, 1, 0, apart(900, 800), HOPS_MAX);
    // The rig's frames are of incarnation 1; life 2 speaks by a beacon, and by data afterwards.
    assert_eq!(switch.handle_frame(at(5), Port(1), &mut bytes), Verdict::Forward(Port(0)));
    beacon(&mut switch, at(6), 1, (process(1, 2), None), apart(2_000, 1_900));
    let [reborn, held] = frozen(1, SwitchEvent::LinkReborn);
    assert_eq!(events(&mut switch), [reborn, held, SwitchEvent::LinkJoined(Port(1))]);
    assert_eq!(told(&mut switch, 7, 0), apart(2_000, 800), "the old life's last commit holds");
    let stale = frame_with_hops(Opcode::Ack, 1, 0, apart(9_000, 9_000), HOPS_MAX);
    assert_eq!(put(&mut switch, at(8), 1, stale), Verdict::Dropped);
    assert_eq!(
        beacon(&mut switch, at(8), 1, (process(1, 1), Some(OWN)), both(9_000)),
        Verdict::Dropped
    );
    assert_eq!(switch.stats().dropped_stale, 2);
    assert_eq!(told(&mut switch, 9, 0), apart(2_000, 800));
}

#[test]
fn a_frame_of_a_new_life_shows_it_without_a_beacon() {
    // Life 1 is what the rig's frames bear; make the known life an earlier one.
    let mut switch = met(guarded(2), apart(50, 40));
    beacon(&mut switch, at(5), 0, (process(0, 0), None), both(9));
    assert_eq!(switch.stats().dropped_stale, 1);
    switch.unplug(Port(0));
    beacon(&mut switch, at(6), 0, (process(0, 0), Some(OWN)), apart(60, 55));
    events(&mut switch);
    let bytes = frame_with_hops(Opcode::Ack, 0, 1, apart(3_000, 2_900), HOPS_MAX);
    let (_, said) = pass(&mut switch, at(7), 0, bytes);
    let [reborn, held] = frozen(0, SwitchEvent::LinkReborn);
    assert_eq!(events(&mut switch), [reborn, held, SwitchEvent::LinkJoined(Port(0))]);
    assert_eq!(said, apart(3_000, 40), "40: of the one that was unplugged");
}

#[test]
fn who_is_deaf_is_dead_until_both_ends_know() {
    let mut switch = met(guarded(2), apart(50, 40));
    let deaf = (process(1, 1), None);
    beacon(&mut switch, at(10), 1, deaf, apart(80, 80));
    assert_eq!(events(&mut switch), frozen(1, SwitchEvent::LinkDeaf));
    let answer = sent(&mut switch, at(10));
    let to_it: Vec<_> = answer.iter().filter(|sent| sent.port == 1).collect();
    assert_eq!(to_it.len(), 1, "told at once that it is not heard, either");
    assert_eq!((to_it[0].header.sender(), to_it[0].header.peer()), (Some(OWN), None));
    beacon(&mut switch, at(11), 1, deaf, apart(90, 90));
    let passing = frame_with_hops(Opcode::Ack, 1, 0, apart(95, 95), HOPS_MAX);
    let (_, said) = pass(&mut switch, at(11), 1, passing);
    assert_eq!((said, switch.is_live(Port(1))), (both(50).min(apart(50, 40)), false));
    assert_eq!(switch.stats().unheard, 3);
    beacon(&mut switch, at(12), 1, (process(1, 1), Some(OWN)), apart(100, 100));
    assert_eq!(events(&mut switch), [SwitchEvent::LinkJoined(Port(1))]);
    beacon(&mut switch, at(13), 0, (process(0, 1), Some(OWN)), apart(100, 100));
    assert_eq!(told(&mut switch, 14, 0), apart(100, 40));
}

#[test]
fn a_false_alarm_is_over_when_the_other_end_has_noticed() {
    let mut switch = met(guarded(2), apart(50, 40));
    switch.lose(Port(1));
    events(&mut switch);
    beacon(&mut switch, at(1), 1, (process(1, 1), Some(OWN)), apart(60, 60));
    assert_eq!(events(&mut switch), [], "it does not know yet");
    let told: Vec<_> = run(&mut switch, 3_000);
    let echoes: Vec<_> = told.iter().filter(|sent| sent.port == 1).collect();
    assert_eq!(echoes.len(), 1, "it is told at the next instant");
    assert_eq!(echoes[0].header.peer(), None);
    let silent = ports_of(&run(&mut switch.clone(), 120_000), Opcode::Beacon);
    assert!(silent.iter().filter(|port| **port == 1).count() <= 16, "it is given up: {silent:?}");
    beacon(&mut switch, at(3_001), 1, (process(1, 1), None), apart(3_000, 3_000));
    assert_eq!(events(&mut switch), [SwitchEvent::LinkJoined(Port(1))]);
}

#[test]
fn nothing_is_heard_from_nobody_knows_whom() {
    let mut switch = new(guarded(2));
    let passed_on = frame_with_hops(Opcode::Ack, 1, 0, both(10), HOPS_MAX - 3);
    assert_eq!(put(&mut switch, at(1), 1, passed_on), Verdict::Dropped, "0 is nowhere yet");
    assert!(!switch.is_live(Port(1)));
    let direct = frame_with_hops(Opcode::Ack, 1, 0, both(10), HOPS_MAX);
    put(&mut switch, at(2), 1, direct);
    assert!(switch.is_live(Port(1)), "a process's own frames say who it is");
    let nobody = rig::frame(Opcode::Beacon, rig::NOBODY, rig::NOBODY, both(10));
    assert_eq!(put(&mut switch, at(3), 0, nobody), Verdict::Dropped);
}

#[test]
fn forged_sources_change_nothing() {
    let mut switch = met(guarded(2), apart(50, 40));
    let before = switch.clone();
    let other = instance_of(Address::Switch(SwitchId(7)), 9);
    for (instance, why) in [
        (process(3, 9), "another process where one is alive"),
        (other, "a switch where a process is alive"),
        (OWN, "ourselves"),
        (instance_of(Address::Switch(SwitchId(1)), 77), "ourselves, later"),
        (process(rig::CONTROLLER, 1), "a controller makes no link live"),
    ] {
        let verdict = beacon(&mut switch, at(1), 1, (instance, Some(OWN)), both(9_000));
        assert_eq!(verdict, Verdict::Dropped, "{why}");
    }
    let direct = frame_with_hops(Opcode::Ack, 3, 0, both(9_000), HOPS_MAX);
    assert_eq!(put(&mut switch, at(1), 1, direct), Verdict::Dropped);
    assert_eq!((events(&mut switch), switch.stats().dropped_misplaced), (vec![], 6));
    assert_eq!(told(&mut switch, 2, 0), told(&mut before.clone(), 2, 0));

    let tree = Tree { base: 0, span: 2, child_span: 1, lanes: 1, processes: 8 };
    let config = Config { lower_ports: 2, upper_ports: 1, route: Route::Tree(tree), ..guarded(2) };
    let mut switch = new(config);
    for (port, instance) in [(0, process(1, 1)), (2, process(1, 1)), (2, process(5, 1))] {
        let verdict = beacon(&mut switch, at(1), port, (instance, None), both(0));
        assert_eq!(verdict, Verdict::Dropped, "{instance:?} at port {port}");
    }
    assert_eq!(beacon(&mut switch, at(1), 1, (process(1, 1), None), both(0)), Verdict::Consumed);
}

#[test]
fn a_join_that_was_passed_on_teaches_the_way_only() {
    let mut switch = new(guarded(3));
    let below = instance_of(Address::Switch(SwitchId(7)), 1);
    beacon(&mut switch, at(0), 0, (below, Some(OWN)), apart(50, 40));
    let join = frame_with_hops(Opcode::Join, 4, 0, both(0), 2);
    assert_eq!(put(&mut switch, at(1), 0, join), Verdict::Consumed);
    assert_eq!(put(&mut switch, at(1), 2, join), Verdict::Consumed);
    assert_eq!(events(&mut switch), [SwitchEvent::LinkJoined(Port(0))], "by its beacon");
    beacon(&mut switch, at(2), 1, (process(1, 1), Some(OWN)), apart(50, 40));
    assert_eq!(put(&mut switch, at(3), 0, join), Verdict::Consumed);
    let bytes = frame_with_hops(Opcode::Ack, 1, 4, both(60), HOPS_MAX);
    assert_eq!(pass(&mut switch, at(4), 1, bytes).0, 0);
}

#[test]
fn control_frames_pass_as_they_are_and_make_no_link_live() {
    let mut switch = met(guarded(3), apart(50, 40));
    switch.unplug(Port(2));
    events(&mut switch);
    let relay = frame_with_hops(Opcode::Ping, 0, 1, both(7_777), HOPS_MAX);
    assert_eq!(pass(&mut switch, at(1), 2, relay), (1, both(7_777)));
    assert!(!switch.is_live(Port(2)));
    let back = frame_with_hops(Opcode::Pong, 1, 0, both(1), HOPS_MAX);
    assert_eq!(pass(&mut switch, at(2), 1, back).0, 2, "it has taught the way");
    assert_eq!(told(&mut switch, 3, 1).barrier, ts(50));
    // A link that carries nothing else still gets its beacons.
    let due = run(&mut switch, 3_000);
    assert!(ports_of(&due, Opcode::Beacon).contains(&1));
}
