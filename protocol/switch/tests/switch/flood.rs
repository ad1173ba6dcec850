//! Floods: passed on, acknowledged, superseded; links resolved by them; and frames that are none.

use crate::harness;

use harness::{
    CONTROLLER, OWN, at, beacon, both, events, guarded, instance_of, of_link, ports_of, process,
    put, run, sent, star, ts,
};
use onepipe_base::{
    Address, Cause, Incarnation, Instance, Machine, Mono, Port, ProcessId, Promises, SwitchId,
};
use onepipe_base::{Timestamp, Verdict};
use onepipe_switch::{Config, Switch, SwitchEvent};
use onepipe_wire::{
    Failure, Flood, FloodAck, FloodId, FloodKind, HEADER_LEN, Header, Opcode, Resolved,
    seal_with_hops,
};

const CONTROLLER_PORT: u16 = 3;

fn id(sequence: u32) -> FloodId {
    FloodId { epoch: 2, sequence }
}

fn notice(sequence: u32) -> Vec<u8> {
    let at = Timestamp::from_ns(1 << 50);
    let failure = Failure {
        first: ProcessId(9),
        count: 1,
        incarnation: Incarnation(1),
        at,
        cause: Cause::TimedOut,
    };
    let mut buf = vec![0; 200];
    let written = Flood { id: id(sequence) }.write_notice(&mut buf, [failure].into_iter());
    buf.truncate(written.expect("fits").1);
    buf
}

fn resume(sequence: u32, resolved: &[(Instance, u32)]) -> Vec<u8> {
    let resolved = resolved.iter().map(|&(owner, number)| Resolved { owner, number });
    let mut buf = vec![0; 200];
    let written = Flood { id: id(sequence) }.write_resume(&mut buf, resolved);
    buf.truncate(written.expect("fits").1);
    buf
}

fn with_payload(opcode: Opcode, from: Instance, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_LEN + payload.len()];
    bytes[HEADER_LEN..].copy_from_slice(payload);
    let header = Header::hop_only(opcode, from, Some(OWN), both(0));
    seal_with_hops(&mut bytes, header, payload.len(), 0);
    bytes
}

fn flood(switch: &mut Switch, now: u64, port: u16, from: Instance, payload: &[u8]) -> Verdict {
    switch.handle_frame(at(now), Port(port), &mut with_payload(Opcode::Flood, from, payload))
}

fn ack_from(
    switch: &mut Switch,
    port: u16,
    from: Instance,
    sequence: u32,
    kind: FloodKind,
) -> Verdict {
    let mut payload = [0; 12];
    FloodAck { id: id(sequence), kind }.write(&mut payload).expect("fits");
    switch.handle_frame(at(1), Port(port), &mut with_payload(Opcode::FloodAck, from, &payload))
}

/// Processes 0 and 1, the switch 7 below, and a controller.
fn set_up() -> Switch {
    let mut switch = Switch::new(guarded(4)).expect("valid");
    switch.handle_timeout(at(0));
    for (port, instance) in [(0, process(0, 1)), (1, process(1, 1)), (2, below())] {
        beacon(&mut switch, at(0), port, (instance, Some(OWN)), both(0));
    }
    let hello = of_link(Opcode::Hello, controller(), None, both(0));
    assert_eq!(put(&mut switch, at(0), CONTROLLER_PORT, hello), Verdict::Consumed);
    events(&mut switch);
    sent(&mut switch, at(0));
    switch
}

fn below() -> Instance {
    instance_of(Address::Switch(SwitchId(7)), 3)
}

fn controller() -> Instance {
    process(CONTROLLER, 1)
}

/// Returns the ports of floods and of acknowledgements sent now.
fn flood_ports(switch: &mut Switch) -> (Vec<u16>, Vec<u16>) {
    let sent = sent(switch, at(1));
    (ports_of(&sent, Opcode::Flood), ports_of(&sent, Opcode::FloodAck))
}

//= spec/failure.md#R27
#[test]
fn notice_is_flooded_and_acked_when_all_have_acked() {
    let mut switch = set_up();
    assert_eq!(flood(&mut switch, 1, CONTROLLER_PORT, controller(), &notice(1)), Verdict::Consumed);
    let out = sent(&mut switch, at(1));
    assert_eq!(
        ports_of(&out, Opcode::Flood),
        [0, 1, 2],
        "not back, and to no other controller port"
    );
    let first = out.iter().find(|sent| sent.opcode == Opcode::Flood).expect("three");
    assert_eq!(first.payload, notice(1), "verbatim");
    assert_eq!((first.header.sender(), first.header.hops()), (Some(OWN), 0));

    assert_eq!(flood(&mut switch, 1, CONTROLLER_PORT, controller(), &notice(1)), Verdict::Consumed);
    assert_eq!(flood_ports(&mut switch), (vec![], vec![]), "duplicate, not acknowledged yet");
    for (port, instance) in [(0, process(0, 1)), (2, below())] {
        assert_eq!(ack_from(&mut switch, port, instance, 1, FloodKind::Notice), Verdict::Consumed);
    }
    let repeated = run(&mut switch, 12_001);
    assert_eq!(ports_of(&repeated, Opcode::Flood), [1], "once, where it is unacknowledged");
    assert_eq!(ports_of(&repeated, Opcode::FloodAck), []);
    assert_eq!(ack_from(&mut switch, 1, process(1, 1), 1, FloodKind::Notice), Verdict::Consumed);
    assert_eq!(flood_ports(&mut switch), (vec![], vec![CONTROLLER_PORT]));
    flood(&mut switch, 1, CONTROLLER_PORT, controller(), &notice(1));
    assert_eq!(
        flood_ports(&mut switch),
        (vec![], vec![CONTROLLER_PORT]),
        "the acknowledgement was lost"
    );
    let stats = *switch.stats();
    assert_eq!((stats.floods_received, stats.floods_sent), (3, 4));
    assert_eq!((stats.flood_acks_received, stats.flood_acks_sent), (3, 2));
}

#[test]
fn duplicate_flood_from_another_link_is_acked_at_once() {
    let mut switch = set_up();
    flood(&mut switch, 1, CONTROLLER_PORT, controller(), &notice(1));
    flood_ports(&mut switch);
    flood(&mut switch, 1, 2, below(), &notice(1));
    assert_eq!(flood_ports(&mut switch), (vec![], vec![2]));
    for port in [0, 1] {
        ack_from(&mut switch, port, process(port.into(), 1), 1, FloodKind::Notice);
    }
    assert_eq!(
        flood_ports(&mut switch),
        (vec![], vec![CONTROLLER_PORT]),
        "port 2 need not acknowledge"
    );
}

#[test]
fn later_flood_supersedes_and_stale_flood_is_ignored() {
    let mut switch = set_up();
    flood(&mut switch, 1, CONTROLLER_PORT, controller(), &notice(2));
    flood_ports(&mut switch);
    assert_eq!(flood(&mut switch, 1, 2, below(), &notice(1)), Verdict::Consumed);
    assert_eq!(flood_ports(&mut switch), (vec![], vec![]));
    flood(&mut switch, 1, 2, below(), &notice(3));
    assert_eq!(flood_ports(&mut switch), (vec![0, 1], vec![]), "its parent is 2 now");
    let stale = ack_from(&mut switch, 0, process(0, 1), 2, FloodKind::Notice);
    let of_another_kind = ack_from(&mut switch, 0, process(0, 1), 3, FloodKind::Resume);
    assert_eq!((stale, of_another_kind), (Verdict::Dropped, Verdict::Dropped));
    assert_eq!(switch.stats().dropped_unexpected, 2);
}

#[test]
fn joining_link_gets_the_latest_notice() {
    let mut switch = set_up();
    switch.mark_link_lost(Port(1));
    flood(&mut switch, 1, CONTROLLER_PORT, controller(), &notice(1));
    assert_eq!(flood_ports(&mut switch).0, [0, 2]);
    beacon(&mut switch, at(1), 1, (process(1, 2), None), both(5));
    assert_eq!(flood_ports(&mut switch).0, [1]);
}

#[test]
fn unacked_dead_link_keeps_the_flood_open() {
    let mut switch = set_up();
    flood(&mut switch, 1, CONTROLLER_PORT, controller(), &notice(1));
    flood_ports(&mut switch);
    ack_from(&mut switch, 0, process(0, 1), 1, FloodKind::Notice);
    ack_from(&mut switch, 2, below(), 1, FloodKind::Notice);
    switch.mark_link_lost(Port(1));
    assert_eq!(flood_ports(&mut switch).1, []);
    beacon(&mut switch, at(1), 1, (process(1, 2), Some(OWN)), both(0));
    assert_eq!(flood_ports(&mut switch).0, [1]);
    ack_from(&mut switch, 1, process(1, 2), 1, FloodKind::Notice);
    assert_eq!(flood_ports(&mut switch).1, [], "another incarnation cannot acknowledge for it");
    flood(&mut switch, 1, CONTROLLER_PORT, controller(), &notice(2));
    assert_eq!(flood_ports(&mut switch).0, [0, 1, 2]);
}

fn promises_of_both(barrier: u64, commit: u64) -> Promises {
    Promises { barrier: ts(barrier), commit: ts(commit) }
}

//= spec/failure.md#R13
#[test]
fn resume_releases_only_the_named_links() {
    let mut switch = set_up();
    for port in [0, 1] {
        let confirmed = (process(port.into(), 1), Some(OWN));
        beacon(&mut switch, at(1), port, confirmed, promises_of_both(40, 30 + u64::from(port)));
    }
    switch.mark_link_lost(Port(2));
    switch.mark_link_lost(Port(0));
    beacon(&mut switch, at(2), 1, (process(1, 1), Some(OWN)), promises_of_both(90, 80));
    events(&mut switch);
    sent(&mut switch, at(2));
    let commit = |switch: &Switch| {
        let mut switch = switch.clone();
        switch.handle_timeout(at(3_000));
        let sent = sent(&mut switch, at(3_000));
        let beacon = sent.iter().find(|sent| sent.opcode == Opcode::Beacon && sent.port == 1);
        beacon.map(|beacon| beacon.header.promises(ts(0)).commit)
    };
    assert_eq!(commit(&switch), Some(ts(0)), "held for the switch below");
    let previous = Instance { incarnation: Incarnation(4), ..OWN };
    let others = [(previous, 1), (previous, 2), (below(), 1), (OWN, 3), (OWN, 0)];
    flood(&mut switch, 3, CONTROLLER_PORT, controller(), &resume(1, &others));
    assert_eq!((events(&mut switch), commit(&switch)), (vec![], Some(ts(0))));
    let passed_on = sent(&mut switch, at(3));
    assert_eq!(
        ports_of(&passed_on, Opcode::Flood),
        [1],
        "forwarded although nothing here is resolved"
    );

    flood(&mut switch, 4, CONTROLLER_PORT, controller(), &resume(2, &[(OWN, 1)]));
    assert_eq!(events(&mut switch), [SwitchEvent::LinkResolved(Port(2))]);
    assert_eq!(commit(&switch), Some(ts(30)), "held for process 0");
    flood(&mut switch, 4, CONTROLLER_PORT, controller(), &resume(2, &[(OWN, 2)]));
    assert_eq!(events(&mut switch), [], "a duplicate flood");
    flood(&mut switch, 5, CONTROLLER_PORT, controller(), &resume(3, &[(OWN, 1), (OWN, 2)]));
    assert_eq!(events(&mut switch), [SwitchEvent::LinkResolved(Port(0))]);
    assert_eq!(commit(&switch), Some(ts(80)));
    assert_eq!(switch.stats().links_resolved, 2);
}

#[test]
fn foreign_and_malformed_floods_change_nothing() {
    let mut switch = set_up();
    let before = switch.clone();
    let later = instance_of(Address::Switch(SwitchId(7)), 4);
    for (port, from, why) in [
        (2, later, "not the instance at that port"),
        (0, below(), "the sender is at another port"),
        (0, process(0, 1), "processes do not forward floods"),
        (0, controller(), "the sender is at another port"),
        (CONTROLLER_PORT, process(CONTROLLER, 2), "not the controller at that port"),
    ] {
        let verdict = flood(&mut switch, 1, port, from, &notice(1));
        assert_eq!(verdict, Verdict::Dropped, "{why}");
    }
    assert_eq!(switch.stats().dropped_misplaced, 5);
    let notice_bytes = notice(1);
    for bytes in 0..notice_bytes.len() {
        let cut = flood(&mut switch, 1, CONTROLLER_PORT, controller(), &notice_bytes[..bytes]);
        assert_eq!(cut, Verdict::Dropped, "{bytes} bytes");
    }
    let mut flipped = with_payload(Opcode::Flood, controller(), &notice_bytes);
    *flipped.last_mut().expect("not empty") ^= 1;
    assert_eq!(switch.handle_frame(at(1), Port(CONTROLLER_PORT), &mut flipped), Verdict::Dropped);
    let mut long = notice_bytes.clone();
    long.resize(1_472 - HEADER_LEN + 1, 0);
    assert_eq!(
        flood(&mut switch, 1, CONTROLLER_PORT, controller(), &long),
        Verdict::Dropped,
        "too long"
    );
    assert_eq!(switch.stats().dropped_malformed, notice_bytes.len() as u64 + 2);
    let short = with_payload(Opcode::FloodAck, below(), &[0; 11]);
    assert_eq!(switch.handle_frame(at(1), Port(2), &mut { short }), Verdict::Dropped);
    assert_eq!(flood_ports(&mut switch), flood_ports(&mut before.clone()));
}

#[test]
fn floods_are_rejected_without_controllers() {
    let mut switch = Switch::new(Config { start_wait_ns: 0, ..star(4) }).expect("valid");
    beacon(&mut switch, at(0), 2, (below(), None), both(0));
    assert_eq!(flood(&mut switch, 1, 2, below(), &notice(1)), Verdict::Dropped);
    assert_eq!(ack_from(&mut switch, 2, below(), 1, FloodKind::Notice), Verdict::Dropped);
    let hello = of_link(Opcode::Hello, controller(), None, both(0));
    assert_eq!(put(&mut switch, at(0), CONTROLLER_PORT, hello), Verdict::Dropped);
    assert_eq!(switch.stats().dropped_unexpected, 3);
    assert!(sent(&mut switch, at(1)).is_empty());
}

//= spec/failure.md#R42
#[test]
fn declared_dead_instance_is_frozen_and_ignored() {
    let mut switch = set_up();
    let mut buf = vec![0; 200];
    let dead = [process(1, 1)];
    let written = Flood { id: id(1) }.write_freeze(&mut buf, dead.into_iter());
    buf.truncate(written.expect("fits").1);
    assert_eq!(flood(&mut switch, 1, CONTROLLER_PORT, controller(), &buf), Verdict::Consumed);
    assert!(events(&mut switch).contains(&SwitchEvent::LinkFrozen(Port(1))));
    assert!(!switch.is_live(Port(1)) && switch.is_live(Port(0)));
    // No acknowledgement of it is outstanding, and no frame of it brings the link back.
    let asked = ports_of(&sent(&mut switch, at(1)), Opcode::Flood);
    assert_eq!(asked, [0, 2]);
    for instance in [process(1, 1), process(1, 0)] {
        for ack_from in [None, Some(OWN)] {
            let beacon = of_link(Opcode::Beacon, instance, ack_from, both(9));
            assert_eq!(put(&mut switch, at(9), 1, beacon), Verdict::Dropped);
        }
    }
    assert!(!switch.is_live(Port(1)));
    // A later incarnation is accepted.
    for ack_from in [None, Some(OWN)] {
        beacon(&mut switch, at(10), 1, (process(1, 2), ack_from), both(10));
    }
    assert!(switch.is_live(Port(1)));
}

/// Returns a death notice about `instance`.
fn death_notice(instance: Instance) -> Vec<u8> {
    let mut buf = vec![0; 40];
    let written = Flood { id: FloodId::HOP_ONLY }.write_freeze(&mut buf, [instance].into_iter());
    buf.truncate(written.expect("fits").1);
    buf
}

#[test]
fn declared_dead_switch_gets_a_death_notice() {
    let mut switch = set_up();
    let mut buf = vec![0; 200];
    let written = Flood { id: id(1) }.write_freeze(&mut buf, [below()].into_iter());
    buf.truncate(written.expect("fits").1);
    flood(&mut switch, 2, CONTROLLER_PORT, controller(), &buf);
    sent(&mut switch, at(2));
    let beacon = of_link(Opcode::Beacon, below(), Some(OWN), both(9));
    assert_eq!(put(&mut switch, at(9), 2, beacon), Verdict::Dropped);
    let advertised = sent(&mut switch, at(9));
    let advertised: Vec<_> =
        advertised.iter().filter(|sent| sent.opcode == Opcode::Flood).collect();
    assert_eq!(advertised.len(), 1);
    assert_eq!((advertised[0].port, &advertised[0].payload), (2, &death_notice(below())));
    assert!(ports_of(&sent(&mut switch, at(10)), Opcode::Flood).is_empty(), "once a beacon");
}

//= spec/failure.md#R42
#[test]
fn switch_restarts_on_a_death_notice() {
    let mut switch = set_up();
    let previous = Instance { incarnation: Incarnation(4), ..OWN };
    for (from, named) in [(process(1, 1), OWN), (below(), previous), (below(), process(1, 1))] {
        flood(&mut switch, 1, 2, from, &death_notice(named));
        assert_eq!(switch.config().incarnation, OWN.incarnation, "{from:?} names {named:?}");
    }
    assert!(switch.is_live(Port(1)), "a death notice only concerns its receiver");
    assert_eq!(flood(&mut switch, 2, 2, below(), &death_notice(OWN)), Verdict::Consumed);
    assert_eq!(switch.config().incarnation, Incarnation(6));
    assert!(!switch.is_live(Port(0)) && !switch.is_live(Port(2)));
    assert_eq!((events(&mut switch), switch.stats().restarts), (vec![SwitchEvent::Restarted], 1));
    assert_eq!(switch.poll_timeout(), Some(Mono::from_ns(0)), "it restarts");
    // It is another instance now: a repeated notice changes nothing.
    flood(&mut switch, 3, 2, below(), &death_notice(OWN));
    assert_eq!(switch.stats().restarts, 1);
}
