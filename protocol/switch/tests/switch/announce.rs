//! Announcements to the controllers: contents, timing and path.

use crate::harness;

use harness::{
    CONTROLLER, OWN, Sent, at, beacon, both, bytes_of, events, guarded, instance_of, of_link, pass,
    process, put, run, sent, ts,
};
use onepipe_base::{
    Address, Cause, Controllers, Incarnation, Instance, Machine, Port, ProcessId, Psn, SwitchId,
    Verdict,
};
use onepipe_switch::{Config, Switch, SwitchEvent};
use onepipe_topology::{ForwardingTable, Route, Tree};
use onepipe_wire::{AnnounceView, HEADER_LEN, Header, Link, LinkState, Opcode, Side};

fn new(config: Config) -> Switch {
    let mut switch = Switch::new(config).expect("valid");
    switch.handle_timeout(at(0));
    switch
}

fn hello(switch: &mut Switch, now: u64, port: u16, instance: Instance) -> Verdict {
    put(switch, at(now), port, of_link(Opcode::Hello, instance, None, both(now)))
}

fn announces(sent: Vec<Sent>) -> Vec<Sent> {
    sent.into_iter().filter(|sent| sent.opcode == Opcode::Announce).collect()
}

fn links(sent: &Sent) -> Vec<Link> {
    let view = AnnounceView::parse(&sent.payload).expect("well-formed");
    view.links(ts(0)).collect()
}

fn up(port: u16, side: Side, instance: Instance) -> Link {
    Link { port: Port(port), side, instance: Some(instance), state: LinkState::Up }
}

//= spec/failure.md#R20
#[test]
fn announces_all_links_after_changes_and_periodically() {
    let mut switch = new(guarded(3));
    assert_eq!(announces(sent(&mut switch, at(0))).len(), 0, "no route to the controller yet");
    let controller = process(CONTROLLER, 4);
    assert_eq!(hello(&mut switch, 10_000, 2, controller), Verdict::Consumed);
    assert_eq!(events(&mut switch), [SwitchEvent::ControllerJoined(Port(2))]);
    let announced = announces(sent(&mut switch, at(10_000)));
    assert_eq!(announced.len(), 1);
    assert_eq!((announced[0].port, announced[0].header.dst()), (2, ProcessId(CONTROLLER)));
    assert_eq!(announced[0].header.sender(), Some(OWN));
    assert_eq!(links(&announced[0]), [up(2, Side::Lower, controller)]);
    assert!(!switch.is_live(Port(2)), "its port stays out of the barriers");

    let one = process(1, 1);
    beacon(&mut switch, at(20_000), 0, (one, None), both(20_000));
    let announced = announces(sent(&mut switch, at(20_000)));
    assert_eq!(links(&announced[0]), [up(2, Side::Lower, controller)], "one-way until confirmed");
    beacon(&mut switch, at(30_000), 0, (one, Some(OWN)), both(30_000));
    let announced = announces(sent(&mut switch, at(30_000)));
    assert_eq!(links(&announced[0]), [up(2, Side::Lower, controller), up(0, Side::Lower, one)]);

    switch.mark_link_lost(Port(0));
    let announced = announces(run(&mut switch, 36_000));
    let state = LinkState::Frozen { number: 1, commit: ts(30_000), cause: Cause::Refused };
    let frozen = Link { port: Port(0), side: Side::Lower, instance: Some(one), state };
    assert_eq!(links(&announced[0]), [frozen, up(2, Side::Lower, controller)]);

    let two = process(1, 2);
    beacon(&mut switch, at(50_000), 0, (two, Some(OWN)), both(50_000));
    let announced = announces(sent(&mut switch, at(50_000)));
    let both_instances = [frozen, up(2, Side::Lower, controller), up(0, Side::Lower, two)];
    assert_eq!(links(&announced[0]), both_instances, "frozen and live links");

    let generation = |sent: &Sent| AnnounceView::parse(&sent.payload).unwrap().announce.generation;
    let mut times = Vec::new();
    for now in (50_000..400_000).step_by(1_000) {
        for instance in [two, controller] {
            let opcode = if instance == two { Opcode::Beacon } else { Opcode::Hello };
            put(
                &mut switch,
                at(now),
                instance.port(),
                of_link(opcode, instance, Some(OWN), both(now)),
            );
        }
        switch.handle_timeout(at(now));
        for again in announces(sent(&mut switch, at(now))) {
            assert_eq!(
                (generation(&again), links(&again)),
                (generation(&announced[0]), both_instances.to_vec())
            );
            times.push(now - 50_000);
        }
    }
    assert_eq!(times.len(), 5, "at growing intervals: {times:?}");
    let mut before = 0;
    for (time, pause_ns) in times.into_iter().zip([10_000, 20_000, 40_000, 80_000, 160_000]) {
        // A thousandth of the slow interval first; shortened by up to a half; observed at the next
        // us.
        assert!((pause_ns / 2..=pause_ns + 1_000).contains(&(time - before)), "{time}");
        before = time;
    }
}

trait HomePort {
    fn port(&self) -> u16;
}

impl HomePort for Instance {
    fn port(&self) -> u16 {
        if self.address == Address::Process(ProcessId(CONTROLLER)) { 2 } else { 0 }
    }
}

#[test]
fn announcements_are_split_into_parts() {
    let controllers = Some(Controllers { first: ProcessId(CONTROLLER), count: 2 });
    let config = Config { frame_len_max: 256, controllers, ..guarded(22) };
    let mut switch = new(config);
    for port in 0..20 {
        beacon(&mut switch, at(0), port, (process(port.into(), 1), Some(OWN)), both(0));
    }
    for controller in [20, 21] {
        hello(&mut switch, 0, controller, process(CONTROLLER - 20 + u32::from(controller), 1));
    }
    let announced = announces(sent(&mut switch, at(0)));
    for replica in [0, 1] {
        let parts: Vec<_> = announced
            .iter()
            .filter(|part| part.header.dst() == ProcessId(CONTROLLER + replica))
            .collect();
        assert!(parts.iter().all(|part| part.port == 20 + replica as u16));
        let mut all = Vec::new();
        for part in &parts {
            let view = AnnounceView::parse(&part.payload).expect("well-formed");
            assert_eq!((view.announce.first, view.announce.total), (all.len() as u16, 22));
            assert!(part.payload.len() <= 256 - HEADER_LEN);
            all.extend(view.links(ts(0)));
        }
        assert_eq!((parts.len(), all.len()), (4, 22));
        all.sort_by_key(|link| link.port);
        all.dedup_by_key(|link| link.port);
        assert_eq!(all.len(), 22, "each once");
    }
}

#[test]
fn announcements_rotate_over_live_uplinks() {
    let tree =
        Tree { base: 0, span: 2, child_span: 1, links_per_child: 1, host_span: 1, processes: 64 };
    let config = Config { upper_ports: 4, route: Route::Tree(tree), ..guarded(2) };
    let mut switch = new(config);
    let spine = |port: u16| instance_of(Address::Switch(SwitchId(10 + u32::from(port))), 1);
    let mut taken = std::collections::BTreeSet::new();
    for round in 1..40u64 {
        let now = round * 100_000;
        for port in [2, 4, 5] {
            beacon(&mut switch, at(now), port, (spine(port), Some(OWN)), both(now));
        }
        if round % 2 == 0 {
            switch.mark_link_lost(Port(4));
        }
        for announced in announces(sent(&mut switch, at(now))) {
            taken.insert(announced.port);
            assert!(switch.is_live(Port(announced.port)), "link 3 never was up");
            assert!(links(&announced).iter().any(|link| link.side == Side::Upper));
        }
    }
    assert!(taken.len() > 1, "{taken:?}");
}

#[test]
fn foreign_frames_keep_one_path_per_pair() {
    let tree =
        Tree { base: 0, span: 2, child_span: 1, links_per_child: 1, host_span: 1, processes: 64 };
    let config = Config { upper_ports: 4, route: Route::Tree(tree), ..guarded(2) };
    let mut switch = new(config);
    for port in 2..6 {
        let spine = instance_of(Address::Switch(SwitchId(10 + u32::from(port))), 1);
        beacon(&mut switch, at(0), port, (spine, Some(OWN)), both(0));
    }
    let next_hop = |switch: &mut Switch, dst: u32, psn: u32| {
        let header = Header::new(Opcode::Foreign, ProcessId(1), ProcessId(dst), Incarnation(1));
        pass(switch, at(10), 1, bytes_of(header.stamped(ts(0), both(0), Psn(psn)))).0
    };
    let next_hops: std::collections::BTreeSet<u16> =
        (10..50).map(|dst| next_hop(&mut switch, dst, 1)).collect();
    assert_eq!(next_hops.len(), 4, "{next_hops:?}");
    for dst in 10..50 {
        let first = next_hop(&mut switch, dst, 0);
        assert!((1..8).all(|psn| next_hop(&mut switch, dst, psn) == first), "to {dst}");
    }
}

//= spec/failure.md#R67
#[test]
fn repeated_control_frames_take_every_path() {
    let tree =
        Tree { base: 0, span: 2, child_span: 1, links_per_child: 1, host_span: 1, processes: 64 };
    let config = Config { upper_ports: 4, route: Route::Tree(tree), ..guarded(2) };
    let mut switch = new(config);
    for port in [2, 3, 5] {
        let spine = instance_of(Address::Switch(SwitchId(10 + u32::from(port))), 1);
        beacon(&mut switch, at(0), port, (spine, Some(OWN)), both(0));
    }
    for opcode in [Opcode::Ping, Opcode::Pong, Opcode::Relay, Opcode::Announce] {
        let mut taken = std::collections::BTreeSet::new();
        for round in 1..40 {
            let header = Header::new(opcode, ProcessId(1), ProcessId(40), Incarnation(1));
            let header = header.stamped(ts(0), both(0), Psn(0));
            taken.insert(pass(&mut switch, at(round * 1_000), 1, bytes_of(header)).0);
        }
        assert_eq!(taken, [2, 3, 5].into(), "{opcode:?}: link 4 never was up");
    }
}

#[test]
fn controller_port_is_learned_from_hello_and_times_out() {
    let table = ForwardingTable::new(64, false);
    let mut switch = new(Config { route: Route::ForwardingTable(table), ..guarded(3) });
    hello(&mut switch, 10, 2, process(CONTROLLER, 4));
    events(&mut switch);
    assert_eq!(hello(&mut switch, 20, 2, process(CONTROLLER, 3)), Verdict::Dropped, "stale");
    assert_eq!(hello(&mut switch, 20, 1, process(7, 1)), Verdict::Dropped, "no controller");
    let above = instance_of(Address::Switch(SwitchId(9)), 1);
    assert_eq!(hello(&mut switch, 20, 1, above), Verdict::Dropped, "no process");
    beacon(&mut switch, at(20), 1, (process(1, 1), None), both(20));
    assert_eq!(hello(&mut switch, 21, 1, process(CONTROLLER, 5)), Verdict::Dropped, "it is taken");
    assert_eq!((switch.stats().hellos_received, switch.stats().dropped_misplaced), (1, 3));
    // A controller times out eight times as late as other neighbours.
    run(&mut switch, 240_010);
    events(&mut switch);
    run(&mut switch, 240_011);
    assert_eq!(events(&mut switch), [SwitchEvent::ControllerLost(Port(2))]);
    hello(&mut switch, 250_000, 2, process(CONTROLLER, 4));
    switch.unplug(Port(2), onepipe_base::Cause::Left);
    let gone = [SwitchEvent::ControllerJoined(Port(2)), SwitchEvent::ControllerLost(Port(2))];
    assert!(events(&mut switch).ends_with(&gone));
    let ping = harness::frame(Opcode::Ping, 1, CONTROLLER, both(250_000));
    assert_eq!(put(&mut switch, at(250_001), 1, ping), Verdict::Dropped, "no route is known");
}

#[test]
fn announces_nothing_without_controllers() {
    let mut switch = new(Config { beacon_interval_ns: 3_000, ..harness::star(2) });
    beacon(&mut switch, at(0), 0, (process(0, 1), None), both(0));
    assert_eq!(announces(run(&mut switch, 50_000_000)).len(), 0);
}

//= spec/failure.md#R45
//= spec/failure.md#R46
#[test]
fn at_rest_announces_rarely_and_answers_hellos() {
    for heartbeat_interval_ns in [0, 1_000_000] {
        let config = Config {
            announce_interval_ns: 100_000,
            heartbeat_interval_ns,
            link_timeout_ns: 0,
            ..guarded(3)
        };
        let mut switch = new(config);
        hello(&mut switch, 10_000, 2, process(CONTROLLER, 4));
        let answered = sent(&mut switch, at(10_000));
        let answers = answered.iter().filter(|sent| sent.opcode == Opcode::Hello && sent.port == 2);
        assert_eq!(answers.count(), usize::from(heartbeat_interval_ns > 0));
        let mut rounds = Vec::new();
        for now in (20_000..10_000_000).step_by(10_000) {
            switch.handle_timeout(at(now));
            if !announces(sent(&mut switch, at(now))).is_empty() {
                rounds.push(now);
            }
        }
        let early = rounds.iter().filter(|at| **at < 1_000_000).count();
        assert!(early >= 10, "{early} rounds in ten intervals after a change");
        let late = rounds.len() - early;
        let expected = if heartbeat_interval_ns > 0 { 9..19 } else { 90..190 };
        assert!(expected.contains(&late), "{late} rounds at rest");
    }
}
