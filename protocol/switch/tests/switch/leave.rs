//! Acknowledgements of Leave frames.

use crate::harness;

use harness::{
    OWN, at, beacon, both, events, frame, frame_with_hops, guarded, join, of_link, ports_of,
    process, put, sent, star,
};
use onepipe_base::Verdict;
use onepipe_switch::Switch;
use onepipe_wire::Opcode;

//= spec/ordering.md#R57
#[test]
fn leave_is_acknowledged_each_time() {
    let mut switch = Switch::new(star(3)).expect("a valid configuration");
    for port in 0..3 {
        join(&mut switch, at(0), port, port.into(), both(10));
    }
    sent(&mut switch, at(0));
    for time in 1..4 {
        put(&mut switch, at(time), 2, frame(Opcode::Leave, 2, 0, both(20 + time)));
        let answers = sent(&mut switch, at(time));
        assert_eq!(ports_of(&answers, Opcode::LeaveAck), [2]);
        assert_eq!(answers[0].header.peer(), Some(process(2, 1)));
        assert!(!switch.is_live(onepipe_base::Port(2)), "a repeated Leave brings no link up");
    }
    assert_eq!(switch.stats().leaves_received, 1);
}

//= spec/ordering.md#R57
#[test]
fn relayed_leave_is_not_acknowledged() {
    let mut switch = Switch::new(star(2)).expect("a valid configuration");
    join(&mut switch, at(0), 0, 0, both(10));
    join(&mut switch, at(0), 1, 1, both(10));
    let relayed = frame_with_hops(Opcode::Leave, 1, 0, both(20), 4);
    assert_eq!(put(&mut switch, at(1), 1, relayed), Verdict::Consumed);
    assert_eq!(ports_of(&sent(&mut switch, at(1)), Opcode::LeaveAck), []);
}

//= spec/ordering.md#R57
#[test]
fn leave_that_does_not_count_is_not_acknowledged() {
    let mut switch = Switch::new(guarded(2)).expect("a valid configuration");
    for port in 0..2 {
        let instance = process(port.into(), 1);
        put(&mut switch, at(0), port, of_link(Opcode::Join, instance, Some(OWN), both(10)));
        beacon(&mut switch, at(1), port, (instance, Some(OWN)), both(10));
    }
    // The switch has lost the link of process 1, whose later promises cannot be counted.
    switch.mark_link_lost(onepipe_base::Port(1));
    events(&mut switch);
    for port in 0..2 {
        let leave = of_link(Opcode::Leave, process(port.into(), 1), Some(OWN), both(20));
        put(&mut switch, at(2), port, leave);
    }
    assert_eq!(ports_of(&sent(&mut switch, at(2)), Opcode::LeaveAck), [0]);
}
