//! Beacons on demand at a switch: heartbeats, solicits, answers, and neighbours that misbehave.

use crate::harness;

use harness::{Sent, at, both, frame, of_link, ports_of, process, put, run, sent, star, ts};
use onepipe_base::{Machine, Port, Promises};
use onepipe_switch::{Config, Switch};
use onepipe_wire::{Flags, HEADER_LEN, Header, Opcode, seal_with_hops};

const INTERVAL_NS: u64 = 1_000;
const HEARTBEAT_NS: u64 = 100_000;
const TIMEOUT_NS: u64 = 20_000;

/// Returns a star of three processes with beacons on demand, at rest from time 10,000 on.
fn at_rest() -> Switch {
    let config = Config {
        beacon_interval_ns: INTERVAL_NS,
        heartbeat_interval_ns: HEARTBEAT_NS,
        link_timeout_ns: TIMEOUT_NS,
        ..star(3)
    };
    let mut switch = Switch::new(config).expect("in range");
    for round in 1..=3 {
        for port in 0..3 {
            beacon(&mut switch, 1_000 * round + u64::from(port), port);
        }
        run(&mut switch, 1_000 * round + 900);
    }
    run(&mut switch, 10_000);
    switch
}

/// Delivers a frame of the process at `port` with promises of the present.
fn link_frame(switch: &mut Switch, opcode: Opcode, now: u64, port: u16, wanted: u64) {
    let own = process(port.into(), 1);
    let header = Header::hop_only(opcode, own, None, both(now)).flagged(Flags::ON_DEMAND);
    let header = if opcode == Opcode::Solicit { header.soliciting(ts(wanted)) } else { header };
    let mut bytes = [0; HEADER_LEN];
    seal_with_hops(&mut bytes, header, 0, 1);
    put(switch, at(now), port, bytes);
}

fn beacon(switch: &mut Switch, now: u64, port: u16) {
    link_frame(switch, Opcode::Beacon, now, port, 0);
}

/// Delivers a message of process 0 to process 1, and the promise that follows it. Returns what the
/// switch sends then.
fn message(switch: &mut Switch, now: u64) -> Vec<Sent> {
    let mut bytes = frame(Opcode::Data, 0, 1, both(now));
    switch.handle_frame(at(now), Port(0), &mut bytes);
    link_frame(switch, Opcode::Beacon, now + 1, 0, 0);
    sent(switch, at(now + 1))
}

//= spec/ordering.md#R40
#[test]
fn rest_carries_heartbeats_only() {
    let mut switch = at_rest();
    let all = run(&mut switch, 10_000 + 4 * HEARTBEAT_NS);
    assert!((9..=15).contains(&all.len()), "{} frames in four heartbeats", all.len());
    assert!(all.iter().all(|sent| sent.opcode == Opcode::Beacon));
}

//= spec/ordering.md#R41
#[test]
fn message_solicits_idle_inputs_and_advertises_the_answer() {
    let mut switch = at_rest();
    let asked = message(&mut switch, 20_000);
    // Process 1 responds to the message itself; process 2 must be asked.
    assert_eq!(ports_of(&asked, Opcode::Solicit), [2]);
    let wanted = asked[0].header.message_ts(ts(20_000));
    assert!(wanted >= ts(19_999), "names the timestamp of the message");
    beacon(&mut switch, 20_500, 2);
    let answered = sent(&mut switch, at(20_500));
    assert_eq!(ports_of(&answered, Opcode::Beacon), [1]);
    assert_eq!(answered[0].header.promises(ts(20_500)).barrier, ts(20_001));
    assert!(sent(&mut switch, at(20_600)).is_empty(), "nothing waits any more");
}

//= spec/ordering.md#R41
#[test]
fn solicit_is_repeated_with_backoff() {
    let mut switch = at_rest();
    message(&mut switch, 20_000);
    let all = run(&mut switch, 20_000 + TIMEOUT_NS / 2);
    let count = ports_of(&all, Opcode::Solicit).iter().filter(|port| **port == 2).count();
    assert!((4..=8).contains(&count), "{count} solicits");
}

//= spec/ordering.md#R44
#[test]
fn neighbour_that_never_answers_loses_its_link() {
    let mut switch = at_rest();
    message(&mut switch, 20_000);
    beacon(&mut switch, 20_100, 1);
    run(&mut switch, 20_000 + TIMEOUT_NS - INTERVAL_NS);
    assert!(switch.is_live(Port(2)), "within the timeout");
    let all = run(&mut switch, 20_000 + 2 * TIMEOUT_NS);
    assert!(!switch.is_live(Port(2)));
    assert!(ports_of(&all, Opcode::Beacon).contains(&1), "the receiver waits for it no longer");
}

/// Lets process 2 answer a solicit after `elapsed` ns. Returns for how long its link then outlives
/// a solicit that it does not answer, in ns.
fn lifetime_after_an_answer(elapsed: u64) -> u64 {
    let mut switch = at_rest();
    message(&mut switch, 20_000);
    beacon(&mut switch, 20_100, 1);
    run(&mut switch, 20_000 + elapsed);
    beacon(&mut switch, 20_000 + elapsed, 2);
    let start = 30_000 + elapsed;
    message(&mut switch, start);
    beacon(&mut switch, start + 100, 1);
    let mut now = start;
    while switch.is_live(Port(2)) {
        assert!(now - start < 20 * TIMEOUT_NS, "never lost");
        now += INTERVAL_NS;
        beacon(&mut switch, now, 0);
        beacon(&mut switch, now, 1);
        run(&mut switch, now);
    }
    now - start
}

//= spec/ordering.md#R55
#[test]
fn slow_answer_lengthens_the_timeout() {
    let timeouts = |elapsed| lifetime_after_an_answer(elapsed).div_ceil(TIMEOUT_NS / 2);
    assert_eq!(timeouts(TIMEOUT_NS / 10), 3, "in half timeouts: one, and the next check");
    assert_eq!(timeouts(TIMEOUT_NS / 2), 5, "four times the answer");
    assert_eq!(timeouts(8 * TIMEOUT_NS), 21, "ten timeouts at most, though the link was lost");
}

//= spec/ordering.md#R44
#[test]
fn idle_neighbour_keeps_its_link_for_ten_heartbeats() {
    let mut switch = at_rest();
    run(&mut switch, 10 * HEARTBEAT_NS);
    assert!((0..3).all(|port| switch.is_live(Port(port))));
    run(&mut switch, 13 * HEARTBEAT_NS);
    assert!((0..3).all(|port| !switch.is_live(Port(port))));
}

//= spec/ordering.md#R46
#[test]
fn endless_solicits_get_few_answers() {
    let mut switch = at_rest();
    let mut answers = 0;
    for step in 0..1_000 {
        let now = 20_000 + step * 10;
        link_frame(&mut switch, Opcode::Solicit, now, 0, now);
        answers += ports_of(&sent(&mut switch, at(now)), Opcode::Beacon)
            .iter()
            .filter(|port| **port == 0)
            .count();
    }
    // 10 intervals.
    assert!((10..=41).contains(&answers), "{answers} answers to 1,000 solicits");
    assert!(switch.stats().solicits_deferred > 900);
}

//= spec/ordering.md#R46
#[test]
fn request_far_ahead_is_forgotten() {
    let mut switch = at_rest();
    link_frame(&mut switch, Opcode::Solicit, 20_000, 0, 20_000 + 3_600_000_000_000);
    let answer = sent(&mut switch, at(20_000));
    assert_eq!(ports_of(&answer, Opcode::Beacon), [0], "the answer");
    let all = run(&mut switch, 20_000 + TIMEOUT_NS);
    assert!(ports_of(&all, Opcode::Beacon).is_empty());
    assert!(ports_of(&all, Opcode::Solicit).is_empty());
}

#[test]
fn neighbour_at_the_fixed_interval_gets_it_too() {
    let mut switch = at_rest();
    let fixed = of_link(Opcode::Beacon, process(1, 1), None, both(20_000));
    put(&mut switch, at(20_000), 1, fixed);
    sent(&mut switch, at(20_000));
    run(&mut switch, 20_500);
    let all = run(&mut switch, 30_500);
    let count = ports_of(&all, Opcode::Beacon).iter().filter(|port| **port == 1).count();
    assert!((9..=11).contains(&count), "{count} beacons in ten intervals");
    assert!(ports_of(&all, Opcode::Solicit).is_empty(), "it would not know what to do with one");
}

#[test]
fn replugged_port_is_at_the_fixed_interval_at_first() {
    let mut switch = at_rest();
    switch.unplug(Port(1), onepipe_base::Cause::Left);
    for now in [20_000, 20_100] {
        put(&mut switch, at(now), 1, frame(Opcode::Data, 1, 0, both(now)));
        beacon(&mut switch, now, 0);
        beacon(&mut switch, now, 2);
        sent(&mut switch, at(now));
    }
    run(&mut switch, 29_500);
    let all = run(&mut switch, 39_500);
    let count = ports_of(&all, Opcode::Beacon).iter().filter(|port| **port == 1).count();
    assert!((9..=11).contains(&count), "{count} beacons in ten intervals");
    assert!(ports_of(&all, Opcode::Solicit).iter().all(|port| *port != 1));
}

#[test]
fn fixed_interval_answers_solicits() {
    let config = Config { beacon_interval_ns: INTERVAL_NS, ..star(3) };
    let mut switch = Switch::new(config).expect("in range");
    put(&mut switch, at(1_000), 0, of_link(Opcode::Beacon, process(0, 1), None, both(1_000)));
    run(&mut switch, 5_100);
    link_frame(&mut switch, Opcode::Solicit, 5_200, 0, 5_200);
    let answer = sent(&mut switch, at(5_200));
    assert_eq!(ports_of(&answer, Opcode::Beacon), [0]);
    let _: Promises = answer[0].header.promises(ts(5_200));
}
