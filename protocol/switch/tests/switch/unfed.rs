//! Switches with no live process below them (`docs/design/failure.md`, "What does an unfed switch
//! send?").

use crate::harness;

use harness::{
    CONTROLLER, OWN, Sent, at, beacon, beacon_from, both, events, frame, guarded, instance_of,
    of_link, pass, ports_of, process, put, sent, star,
};
use onepipe_base::{Address, Instance, Machine, Port, Promises, SwitchId, Timestamp, Verdict};
use onepipe_switch::{Config, Switch, SwitchEvent};
use onepipe_topology::{ForwardingTable, Route};
use onepipe_wire::{
    AnnounceView, Flags, Flood, FloodId, HEADER_LEN, Header, LinkState, Opcode, Resolved,
    seal_with_hops,
};

/// A leaf has two lower ports and one upper one, port 2.
const UP: u16 = 2;
const SPINE: Instance = instance_of(Address::Switch(SwitchId(9)), 3);

fn with_upper(config: Config) -> Switch {
    let route = Route::ForwardingTable(ForwardingTable::new(64, true));
    let config = Config { upper_ports: 1, beacon_interval_ns: 3_000, route, ..config };
    let mut switch = Switch::new(config).expect("valid");
    switch.handle_timeout(at(0));
    switch
}

/// Returns the beacons of the instant `now`.
fn beacons(switch: &mut Switch, now: u64) -> Vec<Sent> {
    switch.handle_timeout(at(now));
    let mut all = sent(switch, at(now));
    all.retain(|sent| sent.opcode == Opcode::Beacon);
    all
}

/// Returns the promises and flags of the beacon for `port` of the instant `now`.
fn promises_to(switch: &mut Switch, now: u64, port: u16) -> Option<(Promises, bool, bool)> {
    let all = beacons(switch, now);
    let beacon = all.iter().find(|sent| sent.port == port)?;
    let flag = |flag| beacon.header.has(flag);
    Some((beacon.header.promises(at(now).sync), flag(Flags::UNFED), flag(Flags::HOLDS)))
}

/// Delivers a beacon of an unfed switch below; `held` is what dead links hold there.
fn unfed(
    switch: &mut Switch,
    now: u64,
    (port, instance): (u16, Instance),
    mark: Timestamp,
    held: Option<Timestamp>,
) {
    let promises = Promises { barrier: mark, commit: held.unwrap_or(mark) };
    let flags = Flags::UNFED | if held.is_some() { Flags::HOLDS } else { 0 };
    let header = Header::hop_only(Opcode::Beacon, instance, Some(OWN), promises).flagged(flags);
    let mut bytes = [0; HEADER_LEN];
    seal_with_hops(&mut bytes, header, 0, 0);
    assert_eq!(put(switch, at(now), port, bytes), Verdict::Consumed);
}

/// Delivers a beacon of the spine that counts what it got up to `counted`, and promises `ns`.
fn from_spine(switch: &mut Switch, now: u64, ns: u64, counted: Option<u64>) {
    let nothing = Timestamp::from_ns(at(0).sync.as_ns() - (1 << 46));
    let header = Header::hop_only(Opcode::Beacon, SPINE, Some(OWN), both(ns))
        .with_counted(counted.map_or(nothing, harness::ts));
    let mut bytes = [0; HEADER_LEN];
    seal_with_hops(&mut bytes, header, 0, 0);
    assert_eq!(put(switch, at(now), UP, bytes), Verdict::Consumed);
}

#[test]
fn unfed_leaf_sends_beacons() {
    for config in [guarded(2), star(2)] {
        let mut leaf = with_upper(config);
        let (promises, is_unfed, holds) = promises_to(&mut leaf, 3_000, UP).expect("a beacon");
        assert!(is_unfed && !holds && promises.barrier < harness::ts(0), "{promises:?}");
        assert_eq!(ports_of(&beacons(&mut leaf, 6_000), Opcode::Beacon), [UP], "to no process");
    }
}

#[test]
fn unfed_mark_follows_the_clock() {
    let mut leaf = with_upper(guarded(2));
    let quarter = 1 << 46;
    let mut before = None;
    for turn in 1..20 {
        let now = turn * quarter;
        let (promises, is_unfed, _) = promises_to(&mut leaf, now, UP).expect("a beacon");
        assert!(is_unfed && before < Some(promises.barrier));
        let age_ns = at(now).sync.since_ns(promises.barrier);
        assert!((quarter - 1..=quarter).contains(&age_ns), "{age_ns}");
        before = Some(promises.barrier);
    }
}

//= spec/failure.md#R15
/// A leaf below the switch is unfed: with controllers and without.
#[test]
fn unfed_link_is_up_and_holds_no_barrier() {
    for config in [guarded(3), star(3)] {
        let has_control = config.controllers.is_some();
        let mut switch = with_upper(Config { upper_ports: 0, link_timeout_ns: 10_000, ..config });
        let leaf = instance_of(Address::Switch(SwitchId(7)), 1);
        for port in [0, 1] {
            let instance = process(port.into(), 1);
            beacon(&mut switch, at(0), port, (instance, Some(OWN)), both(100));
        }
        unfed(&mut switch, 0, (2, leaf), both(0).barrier, None);
        assert!(switch.is_live(Port(2)));
        let (advertised, ..) = promises_to(&mut switch, 3_000, 0).expect("a beacon");
        assert_eq!(advertised.barrier, both(100).barrier);
        let all = beacons(&mut switch, 6_000);
        let ack_from = all
            .iter()
            .find(|sent| sent.port == 2)
            .expect("an unconfirmed link gets a beacon")
            .header
            .peer();
        assert_eq!(ack_from, Some(leaf), "the peer is confirmed");
        // The link times out: there was nothing to hold.
        for port in [0, 1] {
            let instance = process(port.into(), 1);
            beacon(&mut switch, at(9_000), port, (instance, Some(OWN)), both(9_000));
        }
        events(&mut switch);
        switch.handle_timeout(at(10_001));
        assert_eq!(events(&mut switch), [SwitchEvent::LinkLost(Port(2))]);
        // The leaf has not said that it counts this switch, so processes wait until its end has
        // caught up.
        for port in [0, 1] {
            let instance = process(port.into(), 1);
            beacon(&mut switch, at(11_000), port, (instance, Some(OWN)), both(9_000));
        }
        let (advertised, ..) = promises_to(&mut switch, 12_000, 0).expect("a beacon");
        assert_eq!(advertised.commit, both(9_000).commit);
        assert_eq!(switch.stats().links_frozen, 0);
        assert_eq!(has_control, switch.config().controllers.is_some());
    }
}

#[test]
fn late_frame_of_an_unfed_link_carries_no_promise() {
    let mut switch = with_upper(Config { start_wait_ns: 0, ..star(2) });
    let leaf = instance_of(Address::Switch(SwitchId(7)), 1);
    unfed(&mut switch, 1_000, (0, leaf), both(1_000).barrier, None);
    // Overtaken by the beacon (seed 2000022).
    let late = frame(Opcode::Ack, 0, 60, both(500));
    let (output, promises_to) = pass(&mut switch, at(1_100), 0, late);
    assert_eq!(output, UP);
    assert!(promises_to.barrier < both(0).barrier, "the output is unfed: {promises_to:?}");
}

//= spec/failure.md#R15
#[test]
fn holds_behind_an_unfed_link_count_until_resolved() {
    let mut switch = with_upper(Config { upper_ports: 0, link_timeout_ns: 0, ..guarded(3) });
    let leaf = instance_of(Address::Switch(SwitchId(7)), 1);
    let promise_all = |switch: &mut Switch, now| {
        for port in [0, 1] {
            let instance = process(port.into(), 1);
            beacon(switch, at(now), port, (instance, Some(OWN)), both(now));
        }
    };
    promise_all(&mut switch, 1_000);
    beacon(&mut switch, at(1_000), 2, (leaf, Some(OWN)), both(900));
    // The leaf counts what it gets.
    promises_to(&mut switch, 3_000, 2).expect("a beacon");
    let counts = Header::hop_only(Opcode::Beacon, leaf, Some(OWN), both(900));
    put(&mut switch, at(3_500), 2, harness::bytes_of(counts.with_counted(both(1_000).barrier)));
    // The inputs of the leaf are dead.
    promise_all(&mut switch, 4_000);
    unfed(&mut switch, 4_000, (2, leaf), both(901).barrier, Some(both(900).commit));
    let (advertised, ..) = promises_to(&mut switch, 6_000, 0).expect("a beacon");
    assert_eq!((advertised.barrier, advertised.commit), (both(4_000).barrier, both(900).commit));
    // The hold remains when the leaf itself dies.
    let mut orphan = switch.clone();
    orphan.mark_link_lost(Port(2));
    promise_all(&mut orphan, 8_000);
    let (advertised, ..) = promises_to(&mut orphan, 9_000, 0).expect("a beacon");
    assert_eq!((advertised.commit, orphan.stats().links_frozen), (both(900).commit, 1));
    // The hold is resolved.
    unfed(&mut switch, 7_000, (2, leaf), both(901).barrier, None);
    let (advertised, ..) = promises_to(&mut switch, 9_000, 0).expect("a beacon");
    assert_eq!(advertised.commit, both(4_000).commit);
    // A frame from before arrives late.
    let late = of_link(Opcode::Beacon, leaf, Some(OWN), both(900));
    put(&mut switch, at(10_000), 2, late);
    promise_all(&mut switch, 11_000);
    let (advertised, ..) = promises_to(&mut switch, 12_000, 0).expect("a beacon");
    assert_eq!(advertised, both(11_000));
}

/// The only process of a leaf dies: no second timeout is needed, and its commit is held.
#[test]
fn loss_of_the_only_process_is_advertised_at_once() {
    let mut leaf = with_upper(Config { link_timeout_ns: 10_000, ..guarded(2) });
    from_spine(&mut leaf, 0, 0, None);
    beacon(&mut leaf, at(0), 0, (process(0, 1), Some(OWN)), both(100));
    assert_eq!(promises_to(&mut leaf, 3_000, UP), Some((both(100), false, false)));
    from_spine(&mut leaf, 9_000, 9_000, Some(9_000));
    leaf.handle_timeout(at(10_001));
    let mark = Promises { barrier: both(101).barrier, ..both(100) };
    assert_eq!(promises_to(&mut leaf, 10_001, UP), Some((mark, true, true)), "at once");
    // The death is announced, and resolved.
    let all = harness::run(&mut leaf, 30_000_000);
    let announce = all.iter().rev().find(|sent| sent.opcode == Opcode::Announce).expect("due");
    let view = AnnounceView::parse(&announce.payload).expect("well-formed");
    let frozen = |link: &onepipe_wire::Link| matches!(link.state, LinkState::Frozen { .. });
    let frozen: Vec<_> =
        view.links(harness::ts(0)).filter(frozen).map(|link| link.port.0).collect();
    assert_eq!(frozen, [0, UP], "the spine has timed out, too");
    from_spine(&mut leaf, 30_000_000, 30_000_000, None);
    let mut bytes = [0; HEADER_LEN + 64];
    let flood = Flood { id: FloodId { epoch: 1, sequence: 1 } };
    let resolved = [Resolved { owner: OWN, number: 1 }].into_iter();
    let (_, payload) = flood.write_resume(&mut bytes[HEADER_LEN..], resolved).expect("fits");
    let controller = process(CONTROLLER, 1);
    put(&mut leaf, at(30_000_000), 1, of_link(Opcode::Hello, controller, None, both(0)));
    let header = Header::hop_only(Opcode::Flood, controller, None, both(0));
    let length = seal_with_hops(&mut bytes, header, payload, 0);
    let verdict = leaf.handle_frame(at(30_000_000), Port(1), &mut bytes[..length]);
    assert_eq!(verdict, Verdict::Consumed);
    let (_, is_unfed, holds) = promises_to(&mut leaf, 30_003_000, UP).expect("a beacon");
    assert!(is_unfed && !holds);
}

/// A joiner below an unfed leaf gets no commit before the spine counts it.
#[test]
fn first_process_commits_once_counted_above() {
    for config in [guarded(2), Config { holds_joiners: true, ..star(2) }] {
        let mut leaf = with_upper(Config { link_timeout_ns: 0, ..config });
        from_spine(&mut leaf, 1_000, 1_000, Some(1_000));
        let (_, is_unfed, _) = promises_to(&mut leaf, 3_000, UP).expect("a beacon");
        assert!(is_unfed);
        let promise_all = |leaf: &mut Switch, now| {
            beacon(leaf, at(now), 0, (process(0, 1), Some(OWN)), both(now));
        };
        let gets_commit = |leaf: &mut Switch, now| {
            let (advertised, ..) = promises_to(leaf, now, 0).expect("a beacon");
            advertised.commit > harness::ts(0)
        };
        promise_all(&mut leaf, 4_000);
        from_spine(&mut leaf, 5_000, 5_000, Some(1_000));
        promise_all(&mut leaf, 5_500);
        assert!(!gets_commit(&mut leaf, 6_000), "the spine counted an earlier barrier");
        from_spine(&mut leaf, 7_000, 7_000, None);
        promise_all(&mut leaf, 8_000);
        assert!(!gets_commit(&mut leaf, 9_000), "it has not caught up there");
        from_spine(&mut leaf, 10_000, 10_000, Some(5_500));
        promise_all(&mut leaf, 11_000);
        assert!(gets_commit(&mut leaf, 12_000));
        // A second joiner waits for no switch above.
        beacon(&mut leaf, at(13_000), 1, (process(1, 1), Some(OWN)), both(13_000));
        let (advertised, ..) = promises_to(&mut leaf, 15_000, 1).expect("a beacon");
        assert!(advertised.commit > harness::ts(0));
    }
}

/// A switch counts a peer only after the peer has caught up.
#[test]
fn counts_a_peer_once_it_caught_up() {
    let mut switch = with_upper(Config { upper_ports: 0, link_timeout_ns: 0, ..guarded(3) });
    let leaf = instance_of(Address::Switch(SwitchId(7)), 1);
    for port in [0, 1] {
        let instance = process(port.into(), 1);
        beacon(&mut switch, at(0), port, (instance, Some(OWN)), both(1_000));
    }
    let counted = |switch: &mut Switch, now| {
        let all = beacons(switch, now);
        let beacon = all.into_iter().find(|sent| sent.port == 2).expect("a beacon");
        beacon.header.message_ts(at(now).sync)
    };
    beacons(&mut switch, 3_000);
    unfed(&mut switch, 4_000, (2, leaf), both(0).barrier, None);
    assert!(counted(&mut switch, 6_000) < harness::ts(0));
    beacon(&mut switch, at(7_000), 2, (leaf, Some(OWN)), both(900));
    assert!(counted(&mut switch, 9_000) < harness::ts(0), "other ports got more");
    beacon(&mut switch, at(10_000), 2, (leaf, Some(OWN)), both(1_100));
    let at_once = sent(&mut switch, at(10_000));
    assert_eq!(ports_of(&at_once, Opcode::Beacon), [2], "joiners behind it wait for the beacon");
    assert_eq!(counted(&mut switch, 12_000), both(1_100).barrier);
    unfed(&mut switch, 13_000, (2, leaf), both(1_101).barrier, None);
    assert!(counted(&mut switch, 15_000) < harness::ts(0));
}

/// Two unfed switches keep each other's link up.
#[test]
fn fabric_without_processes_stays_linked() {
    let mut root = with_upper(Config { upper_ports: 0, link_timeout_ns: 10_000, ..guarded(1) });
    let leaf = instance_of(Address::Switch(SwitchId(7)), 1);
    for now in (0..60_000).step_by(3_000) {
        unfed(&mut root, now, (0, leaf), both(now).barrier, None);
        let Some((_, is_unfed, holds)) = promises_to(&mut root, now + 3_000, 0) else {
            panic!("no beacon at {now}");
        };
        assert!(is_unfed && !holds);
    }
    assert_eq!(root.stats().links_lost, 0);
    // A beacon of an unfed upper switch feeds no port below.
    let mut lower = with_upper(Config { link_timeout_ns: 0, ..guarded(2) });
    unfed(&mut lower, 0, (UP, SPINE), both(0).barrier, None);
    assert!(lower.is_live(Port(UP)));
    beacon(&mut lower, at(100), 0, (process(0, 1), Some(OWN)), both(90));
    let (advertised, is_unfed, _) = promises_to(&mut lower, 3_000, 0).expect("a beacon");
    assert_eq!((advertised.barrier, is_unfed), (both(90).barrier, false), "it is alone");
    let mut fed = with_upper(star(2));
    beacon_from(&mut fed, at(0), 0, both(5));
    assert!(!promises_to(&mut fed, 3_000, UP).expect("a beacon").1);
}
