//! Commits that do not rise while this switch, or one that feeds it, may be cut off from the
//! controllers (`docs/design/failure.md`, "What may rise while a dead link holds commits?").

use crate::harness;

use harness::{
    CONTROLLER, OWN, Sent, at, both, bytes_of, guarded, instance_of, of_link, ports_of, process,
    put, sent,
};
use onepipe_base::{Address, Instance, Machine, Port, SwitchId, Timestamp, Verdict};
use onepipe_switch::{Config, Switch};
use onepipe_topology::{ForwardingTable, Route};
use onepipe_wire::{Flags, Flood, FloodId, HEADER_LEN, Header, Opcode, Resolved, seal_with_hops};

/// Two processes are at ports 0 and 1, a switch below, a controller, and a switch above.
const BELOW: u16 = 2;
const CONTROLLER_PORT: u16 = 3;
const ABOVE: u16 = 4;

fn neighbour(port: u16) -> Instance {
    match port {
        BELOW | ABOVE => instance_of(Address::Switch(SwitchId(port.into())), 3),
        _ => process(port.into(), 1),
    }
}

/// Sends a beacon from `port` that promises `promise`, and counts as much.
fn promise_on(switch: &mut Switch, now: u64, port: u16, promise: u64, flags: u8) {
    let header = Header::hop_only(Opcode::Beacon, neighbour(port), Some(OWN), both(promise));
    let header = header.with_counted(both(promise).barrier).flagged(flags);
    assert_eq!(put(switch, at(now), port, bytes_of(header)), Verdict::Consumed);
}

/// All neighbours but the switch above promise `now`, which is behind the clock of that switch.
fn all_promise(switch: &mut Switch, now: u64) {
    [0, 1, BELOW].into_iter().for_each(|port| promise_on(switch, now, port, now, 0));
}

/// Returns the beacons of the instant `now`.
fn beacons(switch: &mut Switch, now: u64) -> Vec<Sent> {
    switch.handle_timeout(at(now));
    let mut sent = sent(switch, at(now));
    sent.retain(|sent| sent.opcode == Opcode::Beacon && sent.port != CONTROLLER_PORT);
    sent
}

/// Returns the commits that the beacons of the instant `now` carry, and which of them say that
/// theirs do not rise.
fn commits(switch: &mut Switch, now: u64) -> Vec<(u16, Timestamp, bool)> {
    let beacons = beacons(switch, now);
    let commit = |sent: &Sent| sent.header.promises(at(now).sync).commit;
    beacons.iter().map(|sent| (sent.port, commit(sent), sent.header.has(Flags::HOLDS))).collect()
}

/// Returns a switch that has advertised 14,000 to all neighbours.
fn switch() -> Switch {
    let route = Route::ForwardingTable(ForwardingTable::new(64, true));
    let config = Config { upper_ports: 1, link_timeout_ns: 0, route, ..guarded(4) };
    let mut switch = Switch::new(config).expect("valid");
    switch.handle_timeout(at(0));
    let controller = process(CONTROLLER, 1);
    put(&mut switch, at(0), CONTROLLER_PORT, of_link(Opcode::Hello, controller, None, both(0)));
    for now in (2_000..=14_000).step_by(3_000) {
        promise_on(&mut switch, now, ABOVE, 50_000, 0);
        all_promise(&mut switch, now);
        beacons(&mut switch, now + 1_000);
    }
    all_promise(&mut switch, 17_000);
    let advertised = [0, 1, BELOW, ABOVE].map(|port| (port, both(17_000).commit, false));
    assert_eq!(commits(&mut switch, 18_000), advertised);
    switch
}

/// Floods the end of no hold.
fn flood(switch: &mut Switch, now: u64, sequence: u32) {
    let mut bytes = [0; HEADER_LEN + 64];
    let resolved = [Resolved { owner: neighbour(ABOVE), number: 1 }].into_iter();
    let flood = Flood { id: FloodId { epoch: 1, sequence } };
    let (_, payload) = flood.write_resume(&mut bytes[HEADER_LEN..], resolved).expect("fits");
    let header = Header::hop_only(Opcode::Flood, process(CONTROLLER, 1), None, both(0));
    let length = seal_with_hops(&mut bytes, header, payload, 0);
    switch.handle_frame(at(now), Port(CONTROLLER_PORT), &mut bytes[..length]);
}

//= spec/failure.md#R73
/// Others may go on at the commit of the dead link, and without those that are left here.
#[test]
fn commits_stay_below_a_hold_until_a_controller_is_received() {
    let mut switch = switch();
    switch.mark_link_lost(Port(ABOVE));
    let at_once = sent(&mut switch, at(18_100));
    assert_eq!(ports_of(&at_once, Opcode::Beacon), [0, 1, BELOW, ABOVE], "each is notified");
    let all = |commit, is_stopped| {
        let below = [0, 1, BELOW].map(|port| (port, both(commit).commit, is_stopped));
        // The dead link does not feed its own output, which carries no new commit either.
        below.into_iter().chain([(ABOVE, both(17_000).commit, false)]).collect::<Vec<_>>()
    };
    for now in [20_000, 23_000] {
        all_promise(&mut switch, now);
        assert_eq!(commits(&mut switch, now + 1_000), all(17_000, true));
    }
    flood(&mut switch, 24_100, 1);
    assert_eq!(commits(&mut switch, 24_200), all(23_000, false), "at once");
    all_promise(&mut switch, 60_000);
    assert_eq!(commits(&mut switch, 63_000), all(50_000, false), "up to the hold");
}

//= spec/failure.md#R73
#[test]
fn commits_stay_while_a_neighbour_says_so() {
    for (from, stopped) in [(ABOVE, vec![0, 1, BELOW]), (BELOW, vec![0, 1, ABOVE])] {
        let mut switch = switch();
        all_promise(&mut switch, 20_000);
        promise_on(&mut switch, 20_000, from, 50_000, Flags::HOLDS);
        let risen = |port: &u16| !stopped.contains(port);
        let expected = |commit: fn(bool) -> u64| {
            [0, 1, BELOW, ABOVE]
                .map(|port| (port, both(commit(risen(&port))).commit, !risen(&port)))
        };
        let at_once = commits(&mut switch, 20_100);
        assert_eq!(at_once, expected(|has_risen| if has_risen { 20_000 } else { 17_000 }));
        promise_on(&mut switch, 20_200, from, 50_000, 0);
        let rises = [0, 1, BELOW, ABOVE].map(|port| (port, both(20_000).commit, false));
        assert_eq!(commits(&mut switch, 20_300), rises);
        promise_on(&mut switch, 20_400, 0, 20_000, Flags::HOLDS);
        assert_eq!(commits(&mut switch, 20_500), [], "a process stops nothing");
        promise_on(&mut switch, 20_600, from, 50_000, Flags::HOLDS);
        switch.mark_link_lost(Port(from));
        flood(&mut switch, 20_700, 1);
        let lost = commits(&mut switch, 21_000);
        assert!(lost.iter().all(|(.., is_stopped)| !is_stopped), "a dead link stops nothing");
    }
}
