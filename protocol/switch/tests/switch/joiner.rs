//! A joiner's promise may lie below what others were sent (`docs/design/failure.md`, "When does a
//! joiner commit?").

use crate::harness;

use harness::{OWN, at, beacon, both, bytes_of, guarded, instance_of, process, put, star};
use onepipe_base::{Address, Instance, Machine, Port, Promises, SwitchId, Timestamp, WIRE_MODULUS};
use onepipe_switch::{Config, Switch};
use onepipe_topology::{ForwardingTable, Route};
use onepipe_wire::{Header, Opcode};

/// Returns the commits that the beacons of the next instant carry, by port.
fn commits_advertised(switch: &mut Switch, now: u64) -> [Option<Timestamp>; 3] {
    switch.handle_timeout(at(now));
    let mut advertised = [None; 3];
    for sent in harness::sent(switch, at(now)) {
        if sent.opcode == Opcode::Beacon {
            advertised[usize::from(sent.port)] = Some(sent.header.promises(at(now).sync).commit);
        }
    }
    advertised
}

fn promise_on(switch: &mut Switch, now: u64, port: u16, promise: u64) {
    let instance: Instance = process(u32::from(port), 1);
    beacon(switch, at(now), port, (instance, Some(OWN)), both(promise));
}

fn join_at(switch: &mut Switch, now: u64, port: u16, promise: u64) {
    beacon(switch, at(now), port, (process(u32::from(port), 1), None), both(promise));
    promise_on(switch, now, port, promise);
}

//= spec/failure.md#R14
/// With controllers, and without them where messages bypass the switch.
#[test]
fn joiner_gets_no_commit_before_it_caught_up() {
    check_joiner(guarded(3));
    check_joiner(Config { holds_joiners: true, beacon_interval_ns: 3_000, ..star(3) });
}

fn check_joiner(mut config: Config) {
    config.route = Route::ForwardingTable(ForwardingTable::new(64, false));
    let mut switch = Switch::new(config).expect("valid");
    switch.handle_timeout(at(0));
    for port in [0, 1] {
        join_at(&mut switch, 10_000, port, 10_000);
        promise_on(&mut switch, 20_000, port, 20_000);
    }
    let advertised = commits_advertised(&mut switch, 24_000);
    assert_eq!([advertised[0], advertised[1]], [both(20_000).commit; 2].map(Some));

    // Its clock is behind: it holds the others, and gets no commits itself.
    join_at(&mut switch, 25_000, 2, 15_000);
    let advertised = commits_advertised(&mut switch, 27_000);
    assert_eq!([advertised[0], advertised[1]], [both(20_000).commit; 2].map(Some), "held");
    assert!(advertised[2] < Some(both(0).commit), "{advertised:?}");

    promise_on(&mut switch, 28_000, 2, 20_000);
    assert_eq!(commits_advertised(&mut switch, 30_000)[2], Some(both(20_000).commit));
    // From now on its own promise holds the others.
    for port in [0, 1] {
        promise_on(&mut switch, 31_000, port, 31_000);
    }
    let advertised = commits_advertised(&mut switch, 33_000);
    assert_eq!([advertised[0], advertised[1]], [both(20_000).commit; 2].map(Some));
}

//= spec/failure.md#R36
/// Processes below a restarted switch do not get commits of each other alone: the rest of the
/// fabric may be behind. A table has no other inputs, nor has one whose upper links are silent.
#[test]
fn no_commit_below_before_an_uplink_is_ready() {
    for (upper_ports, has_upper_switch, advertised_at) in
        [(0, false, 11_000), (1, true, 23_000), (1, false, 41_000)]
    {
        let route = Route::ForwardingTable(ForwardingTable::new(64, upper_ports > 0));
        let link_timeout_ns = 30_000;
        let mut switch = Switch::new(Config { upper_ports, link_timeout_ns, route, ..guarded(2) })
            .expect("valid");
        [0, 1].into_iter().for_each(|port| join_at(&mut switch, 8_000, port, 8_000));
        let mut gets_commit = |now: u64| {
            [0, 1].into_iter().for_each(|port| promise_on(&mut switch, now, port, now));
            if has_upper_switch && now >= 20_000 {
                let spine = instance_of(Address::Switch(SwitchId(9)), 3);
                let header = Header::hop_only(Opcode::Beacon, spine, Some(OWN), both(now));
                put(&mut switch, at(now), 2, bytes_of(header.with_counted(both(now).barrier)));
            }
            let advertised = commits_advertised(&mut switch, now + 1_000);
            advertised[..2].iter().flatten().any(|commit| *commit > both(0).commit)
        };
        let first = (11_000..60_000).step_by(3_000).find(|now| gets_commit(*now));
        assert_eq!(
            first,
            Some(advertised_at),
            "{upper_ports} above, with a switch: {has_upper_switch}"
        );
    }
}

/// Delivers a beacon of the switch above, at port 2. It counts what was advertised to it; without
/// `commit` it holds its joiners.
fn from_spine(switch: &mut Switch, now: u64, barrier: u64, commit: Option<u64>) {
    let nothing = Timestamp::from_ns(both(now).commit.as_ns() - WIRE_MODULUS / 4);
    let commit = commit.map_or(nothing, |commit| both(commit).commit);
    let promises = Promises { commit, ..both(barrier) };
    let spine = instance_of(Address::Switch(SwitchId(9)), 3);
    let header = Header::hop_only(Opcode::Beacon, spine, Some(OWN), promises);
    put(switch, at(now), 2, bytes_of(header.with_counted(both(now).barrier)));
}

//= spec/failure.md#R47
/// A switch above holds its joiners: a part of the fabric that is ahead has come up there. The
/// processes below have caught up with their own switch, not with that part.
#[test]
fn no_commit_below_while_the_switch_above_sends_none() {
    for config in [guarded(2), Config { holds_joiners: true, ..star(2) }] {
        let route = Route::ForwardingTable(ForwardingTable::new(64, true));
        let config = Config { upper_ports: 1, beacon_interval_ns: 3_000, route, ..config };
        let mut switch = Switch::new(config).expect("valid");
        [0, 1].into_iter().for_each(|port| join_at(&mut switch, 8_000, port, 8_000));
        let commits = |switch: &mut Switch, now: u64| {
            [0, 1].into_iter().for_each(|port| promise_on(switch, now, port, now));
            let [first, second, _] = commits_advertised(switch, now + 1_000);
            assert_eq!(first, second);
            first.filter(|commit| *commit >= both(0).commit)
        };
        from_spine(&mut switch, 9_000, 9_000, Some(9_000));
        commits(&mut switch, 11_000);
        from_spine(&mut switch, 12_000, 12_000, Some(12_000));
        assert_eq!(commits(&mut switch, 14_000), Some(both(12_000).commit));

        from_spine(&mut switch, 15_000, 15_000, None);
        assert_eq!(commits(&mut switch, 17_000), None, "not what was advertised before either");
        from_spine(&mut switch, 18_000, 14_000, Some(14_000));
        assert_eq!(commits(&mut switch, 20_000), None, "overtaken by the frame without a commit");
        let mut lost = switch.clone();
        from_spine(&mut switch, 21_000, 21_000, Some(20_000));
        assert_eq!(commits(&mut switch, 23_000), Some(both(20_000).commit));

        lost.mark_link_lost(Port(2));
        assert!(commits(&mut lost, 23_000).is_some(), "a dead link holds no joiners");
    }
}
