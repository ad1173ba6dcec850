//! A process id that two processes use at once: the later incarnation counts.

use crate::harness;

use harness::{CONTROLLER, at, both, frame_with_hops, guarded, of_link, process, put, star};
use onepipe_base::{Instance, Machine, Port, Verdict};
use onepipe_switch::{Config, Switch};
use onepipe_wire::{HEADER_LEN, HOPS_MAX, Header, Opcode, seal_with_hops};

fn join(switch: &mut Switch, now: u64, port: u16, instance: Instance) -> Verdict {
    let frame = of_link(Opcode::Join, instance, None, both(now));
    put(switch, at(now), port, frame)
}

/// Returns the port to which a message to process 1 goes.
fn output(switch: &mut Switch, now: u64) -> Verdict {
    let message = frame_with_hops(Opcode::Data, 2, 1, both(now), HOPS_MAX);
    put(switch, at(now), 2, message)
}

//= spec/failure.md#R12
/// The earlier process was disconnected and joins again, at a port that it had not used before.
#[test]
fn earlier_incarnation_does_not_take_over_the_route() {
    check_both(guarded(4));
    check_both(star(4));
}

fn check_both(config: Config) {
    let mut switch = Switch::new(config).expect("valid");
    switch.handle_timeout(at(0));
    let (earlier, later) = (process(1, 5), process(1, 6));
    assert_eq!(join(&mut switch, 10_000, 2, process(2, 1)), Verdict::Consumed);
    assert_eq!(join(&mut switch, 10_000, 0, earlier), Verdict::Consumed);
    assert_eq!(join(&mut switch, 11_000, 1, later), Verdict::Consumed);
    let output_before = output(&mut switch, 12_000);
    // Its frames count otherwise: it has to learn of its exclusion.
    assert_eq!(join(&mut switch, 13_000, 3, earlier), Verdict::Consumed);
    assert_eq!(output(&mut switch, 14_000), output_before);
    // The same incarnation may move, and a later one too.
    assert_eq!(join(&mut switch, 15_000, 3, later), Verdict::Consumed);
    assert_ne!(output(&mut switch, 16_000), output_before);
    assert_eq!(join(&mut switch, 17_000, 0, process(1, 7)), Verdict::Consumed);
    assert_ne!(output(&mut switch, 18_000), output_before);
}

//= spec/failure.md#R12
/// A lost link supersedes nobody: the clock of the next host of a process may be behind.
#[test]
fn earlier_incarnation_joins_once_the_link_of_the_later_is_lost() {
    let mut switch = Switch::new(Config { link_timeout_ns: 20_000, ..star(4) }).expect("valid");
    switch.handle_timeout(at(0));
    join(&mut switch, 9_000, 2, process(2, 1));
    join(&mut switch, 10_000, 1, process(1, 6));
    let output_before = output(&mut switch, 11_000);
    join(&mut switch, 12_000, 3, process(1, 5));
    assert_eq!(output(&mut switch, 13_000), output_before);
    harness::run(&mut switch, 40_000);
    join(&mut switch, 41_000, 3, process(1, 5));
    assert_ne!(output(&mut switch, 42_000), output_before);
}

//= spec/failure.md#R12
/// An excluded process asks controllers, whose replies are routed by process id.
#[test]
fn control_frame_of_earlier_incarnation_takes_the_route() {
    let mut switch = Switch::new(guarded(4)).expect("valid");
    switch.handle_timeout(at(0));
    let (earlier, later) = (process(1, 5), process(1, 6));
    join(&mut switch, 10_000, 2, process(2, 1));
    join(&mut switch, 11_000, 1, later);
    let output_before = output(&mut switch, 12_000);
    let ask = of_link(Opcode::Recovery, earlier, None, both(13_000));
    put(&mut switch, at(13_000), 3, ask);
    assert_ne!(output(&mut switch, 14_000), output_before);
    let beacon = of_link(Opcode::Beacon, later, None, both(15_000));
    assert_eq!(put(&mut switch, at(15_000), 1, beacon), Verdict::Consumed);
    assert_eq!(output(&mut switch, 16_000), output_before);
}

//= spec/ordering.md#R68
/// The driver drops the frames of a second controller, which need not be the earlier one.
#[test]
fn announced_controller_takes_the_route_from_a_later_one() {
    let mut switch = Switch::new(guarded(4)).expect("valid");
    switch.handle_timeout(at(0));
    for port in 0..4 {
        join(&mut switch, 10_000, port, process(u32::from(port), 1));
    }
    let announce = |switch: &mut Switch, now, port, incarnation| {
        let instance = process(CONTROLLER, incarnation);
        let mut frame = [0; HEADER_LEN];
        let join = Header::hop_only(Opcode::Join, instance, None, both(now));
        seal_with_hops(&mut frame, join, 0, 2);
        assert_eq!(put(switch, at(now), port, frame), Verdict::Consumed);
        let message = frame_with_hops(Opcode::Data, 2, CONTROLLER, both(now), HOPS_MAX);
        put(switch, at(now), 2, message)
    };
    assert_eq!(announce(&mut switch, 11_000, 1, 6), Verdict::Forward(Port(1)));
    assert_eq!(announce(&mut switch, 12_000, 3, 5), Verdict::Forward(Port(3)));
}
