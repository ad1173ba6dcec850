//! Commits on links whose other end holds commits of a previous incarnation
//! (`docs/design/failure.md`, "What is sent while a previous incarnation's commits are held?").

use crate::harness;

use harness::{
    CONTROLLER, OWN, Sent, at, beacon, both, bytes_of, guarded, instance_of, of_link, ports_of,
    process, put, run, sent,
};
use onepipe_base::{Address, Instance, Machine, Port, Promises, SwitchId, Verdict};
use onepipe_switch::{Config, Switch};
use onepipe_topology::{ForwardingTable, Route};
use onepipe_wire::{Flags, Flood, FloodId, HEADER_LEN, Header, Opcode, Resolved, seal_with_hops};

/// Ports 0 and 1 are lower ports, this one is upper.
const UP: u16 = 2;
const SPINE: Instance = instance_of(Address::Switch(SwitchId(9)), 3);

/// Returns a leaf with two-way neighbours that count it and promise 11,000.
fn leaf() -> Switch {
    let route = Route::ForwardingTable(ForwardingTable::new(64, true));
    let config = Config { upper_ports: 1, link_timeout_ns: 0, route, ..guarded(2) };
    let mut leaf = Switch::new(config).expect("valid");
    leaf.handle_timeout(at(0));
    for instant in (3_000..=12_000).step_by(3_000) {
        all_promise(&mut leaf, instant - 1_000, None);
        beacon_to(&mut leaf, instant, 0);
    }
    leaf
}

/// Sends a beacon from `port` that promises `promise`, and counts as much.
fn promise_on(leaf: &mut Switch, now: u64, port: u16, promise: u64, flags: u8) {
    let instance = if port == UP { SPINE } else { process(port.into(), 1) };
    let header = Header::hop_only(Opcode::Beacon, instance, Some(OWN), both(promise));
    let header = header.with_counted(both(promise).barrier).flagged(flags);
    assert_eq!(put(leaf, at(now), port, bytes_of(header)), Verdict::Consumed);
}

/// All neighbours promise `now`; one of them holds commits of a previous incarnation of the leaf.
fn all_promise(leaf: &mut Switch, now: u64, previous_at: Option<u16>) {
    for port in [UP, 0, 1] {
        let flags = if previous_at == Some(port) { Flags::PREVIOUS_HOLDS } else { 0 };
        promise_on(leaf, now, port, now, flags);
    }
}

/// Returns the beacon for `port` of the instant `now`.
fn beacon_to(leaf: &mut Switch, now: u64, port: u16) -> Sent {
    leaf.handle_timeout(at(now));
    let mut all = sent(leaf, at(now)).into_iter();
    all.find(|sent| (sent.opcode, sent.port) == (Opcode::Beacon, port)).expect("one an instant")
}

fn advertised_to(leaf: &mut Switch, now: u64, port: u16) -> Promises {
    beacon_to(leaf, now, port).header.promises(at(now).sync)
}

//= spec/failure.md#R18
/// The commit would count once the hold is resolved, however little the others had promised by
/// then.
#[test]
fn no_commit_where_a_previous_incarnation_holds_one() {
    for port in [0, UP] {
        let mut leaf = leaf();
        assert_eq!(advertised_to(&mut leaf, 15_000, port), both(11_000));
        all_promise(&mut leaf, 17_000, Some(port));
        let promises = advertised_to(&mut leaf, 18_000, port);
        assert_eq!(promises.barrier, both(17_000).barrier, "the barrier is not held");
        assert!(promises.commit <= both(11_000).commit, "the commit does not rise: {promises:?}");
        let other = if port == UP { 0 } else { UP };
        assert_eq!(advertised_to(&mut leaf, 21_000, other), both(17_000), "other ports get it");
        all_promise(&mut leaf, 23_000, None);
        assert_eq!(advertised_to(&mut leaf, 24_000, port), both(23_000), "the hold is resolved");
    }
}

//= spec/failure.md#R18
/// When the hold is resolved, the current peer gets a beacon at once.
#[test]
fn beacon_flags_a_previous_incarnations_hold() {
    let mut leaf = leaf();
    let has_flag = |sent: &Sent| sent.header.has(Flags::PREVIOUS_HOLDS);
    assert!(!has_flag(&beacon_to(&mut leaf, 15_000, 0)));
    beacon(&mut leaf, at(16_000), 0, (process(0, 2), Some(OWN)), both(16_000));
    assert!(has_flag(&beacon_to(&mut leaf, 18_000, 0)));
    assert!(!has_flag(&beacon_to(&mut leaf, 21_000, 1)), "no other link has died");

    leaf.unplug(Port(1), onepipe_base::Cause::Left);
    let controller = process(CONTROLLER, 1);
    put(&mut leaf, at(22_000), 1, of_link(Opcode::Hello, controller, None, both(0)));
    let mut bytes = [0; HEADER_LEN + 64];
    let flood = Flood { id: FloodId { epoch: 1, sequence: 1 } };
    let resolved = [Resolved { owner: OWN, number: 1 }].into_iter();
    let (_, payload) = flood.write_resume(&mut bytes[HEADER_LEN..], resolved).expect("fits");
    let header = Header::hop_only(Opcode::Flood, controller, None, both(0));
    let length = seal_with_hops(&mut bytes, header, payload, 0);
    run(&mut leaf, 22_000);
    let verdict = leaf.handle_frame(at(22_000), Port(1), &mut bytes[..length]);
    assert_eq!(verdict, Verdict::Consumed);
    let at_once = sent(&mut leaf, at(22_000));
    assert!(ports_of(&at_once, Opcode::Beacon).contains(&0), "before the next instant");
    let beacons = at_once.iter().filter(|sent| sent.opcode == Opcode::Beacon);
    assert!(!beacons.into_iter().any(has_flag));
}
