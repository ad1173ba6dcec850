//! Frames with several receivers: a copy for each output that leads to some of them, and the
//! promise with the last.

use crate::harness;

use std::ops::Range;

use harness::{at, beacon_from, both, join, promises_of, star, ts};
use onepipe_base::{Incarnation, Machine, Port, ProcessId, Psn, Verdict};
use onepipe_switch::{Form, Switch};
use onepipe_topology::{ForwardingTable, Route};
use onepipe_wire::{
    HEADER_LEN, Header, Opcode, SharedReceiver, SharedReceivers, parse_header, seal,
};

/// Returns a star of four processes, each at the port with its number, that have promised `ns`.
fn joined(ns: u64) -> Switch {
    let mut switch = Switch::new(star(4)).expect("valid");
    for process in 0..4 {
        join(&mut switch, at(ns), process, process.into(), both(ns));
    }
    switch
}

fn shared(src: u32, receivers: &[u32], stamp: u64, promise: u64) -> Vec<u8> {
    let mut bytes = vec![0; 256];
    let receiver = |process: &u32| SharedReceiver {
        process: ProcessId(*process),
        psn: Psn(process.wrapping_add(10)),
        index: 0,
        is_ack_wanted: false,
        has_ack: false,
    };
    let list = receivers.iter().map(receiver);
    let len = SharedReceivers::write(&mut bytes[HEADER_LEN..], list).expect("it fits");
    let header = Header::new(Opcode::SharedData, ProcessId(src), ProcessId(0), Incarnation(1))
        .stamped(ts(stamp), both(promise), Psn(0))
        .unaddressed();
    let frame_len = seal(&mut bytes, header, len);
    bytes.truncate(frame_len);
    bytes
}

/// The output, the receiver, the PSN and the barrier of a copy.
type Sent = (u16, u32, u32, u64);

/// Passes a frame in until all its copies are forwarded. Returns these, and the last verdict if it
/// forwarded none.
fn copies(switch: &mut Switch, ns: u64, port: u16, bytes: &[u8]) -> (Vec<Sent>, Option<Verdict>) {
    let (mut frame, mut all) = (bytes.to_vec(), Vec::new());
    loop {
        let verdict = switch.handle_frame(at(ns), Port(port), &mut frame);
        let (Verdict::Forward(output) | Verdict::Replicate(output)) = verdict else {
            return (all, Some(verdict));
        };
        let (header, _) = parse_header(&frame).expect("a copy");
        assert_eq!(header.hops(), onepipe_wire::HOPS_MAX - 1);
        let barrier = promises_of(&frame, at(ns)).barrier.as_ns() - harness::OFFSET_NS;
        all.push((output.0, header.dst().0, header.psn().0, barrier));
        // A driver may mark the copy that it sends.
        onepipe_wire::mark_congestion(&mut frame);
        if let Verdict::Forward(_) = verdict {
            return (all, None);
        }
    }
}

//= spec/ordering.md#R52
#[test]
fn promise_counts_with_the_last_copy() {
    let mut switch = joined(100);
    for port in 1..4 {
        beacon_from(&mut switch, at(200), port, both(200));
    }
    let frame = shared(0, &[1, 2, 2, 3], 150, 180);
    let (sent, rest) = copies(&mut switch, 200, 0, &frame);
    let expected = [(1, 1, 11, 100), (2, 2, 12, 100), (2, 2, 12, 100), (3, 3, 13, 180)];
    assert_eq!((sent.as_slice(), rest), (expected.as_slice(), None));
    assert_eq!(switch.stats().forwarded, 4);
}

#[test]
fn frame_between_two_copies_leaves_the_rest() {
    let mut switch = joined(100);
    let mut frame = shared(0, &[1, 2], 150, 180);
    let first = switch.handle_frame(at(200), Port(0), &mut frame);
    assert_eq!(first, Verdict::Replicate(Port(1)));
    beacon_from(&mut switch, at(200), 3, both(190));
    let mut copy = shared(3, &[0], 150, 195);
    let (header, _) = parse_header(&copy).expect("a frame");
    header.write_copy(&mut copy, (ProcessId(0), Psn(10)));
    let passed = switch.handle_frame(at(200), Port(3), &mut copy);
    assert_eq!(passed, Verdict::Forward(Port(0)), "a copy that another switch has made");
    let last = switch.handle_frame(at(200), Port(0), &mut frame);
    assert_eq!(last, Verdict::Forward(Port(2)));
}

//= spec/ordering.md#R52
#[test]
fn unreachable_receivers_cost_the_others_nothing() {
    let mut switch = joined(100);
    // The sender itself, an unknown process and one that no switch has.
    let frame = shared(0, &[0, 1, 50, u32::MAX, 2], 150, 180);
    let (sent, rest) = copies(&mut switch, 200, 0, &frame);
    let outputs: Vec<_> = sent.iter().map(|copy| (copy.0, copy.1)).collect();
    assert_eq!((outputs.as_slice(), rest), ([(1, 1), (2, 2)].as_slice(), None));
    let (sent, rest) = copies(&mut switch, 200, 0, &shared(0, &[1, 50], 150, 180));
    assert_eq!((sent.len(), rest), (1, Some(Verdict::Dropped)));
    assert_eq!((switch.stats().dropped_unknown, switch.stats().dropped_back), (3, 1));
}

#[test]
fn malformed_lists_are_dropped() {
    let mut switch = joined(100);
    let seal_list = |list: &[u8]| {
        let mut bytes = vec![0; HEADER_LEN + list.len()];
        bytes[HEADER_LEN..].copy_from_slice(list);
        let header = Header::new(Opcode::SharedData, ProcessId(0), ProcessId(0), Incarnation(1));
        seal(&mut bytes, header.stamped(ts(150), both(180), Psn(0)).unaddressed(), list.len());
        bytes
    };
    for list in [&[][..], &[0, 0, 0, 0], &[65; 900], &[2; 27], &[1, 0, 0]] {
        let mut frame = seal_list(list);
        let verdict = switch.handle_frame(at(200), Port(0), &mut frame);
        assert_eq!(verdict, Verdict::Dropped, "{list:?}");
    }
    assert_eq!(switch.stats().dropped_malformed, 5);
    // A driver that cuts the frame off between two copies.
    let mut frame = shared(0, &[1, 2], 150, 180);
    assert_eq!(switch.handle_frame(at(200), Port(0), &mut frame), Verdict::Replicate(Port(1)));
    let verdict = switch.handle_frame(at(200), Port(0), &mut frame[..HEADER_LEN]);
    assert_eq!(verdict, Verdict::Dropped);
}

#[test]
fn every_form_replicates() {
    for form in [Form::Chip, Form::OffChip, Form::Edge] {
        let config = onepipe_switch::Config { form, ..star(4) };
        let mut switch = Switch::new(config).expect("valid");
        for process in 0..4 {
            join(&mut switch, at(100), process, process.into(), both(100));
        }
        let (sent, rest) = copies_of(&mut switch, &shared(0, &[1, 2, 3], 150, 180));
        assert_eq!((sent, rest), (vec![1, 2, 3], None), "{form:?}");
    }
}

/// As [`copies`] for switches that do not rewrite frames. Returns the outputs.
fn copies_of(switch: &mut Switch, bytes: &[u8]) -> (Vec<u32>, Option<Verdict>) {
    let (mut frame, mut all) = (bytes.to_vec(), Vec::new());
    loop {
        let verdict = switch.handle_frame(at(200), Port(0), &mut frame);
        let (Verdict::Forward(output) | Verdict::Replicate(output)) = verdict else {
            return (all, Some(verdict));
        };
        let (header, _) = parse_header(&frame).expect("a copy");
        assert_eq!(header.dst().0, u32::from(output.0));
        all.push(header.dst().0);
        if let Verdict::Forward(_) = verdict {
            return (all, None);
        }
    }
}

/// Returns a switch with four processes below, whose uplink at port 4 leads to all others.
fn below_a_root(form: Form) -> Switch {
    let route = Route::ForwardingTable(ForwardingTable::new(64, true));
    let config = onepipe_switch::Config { upper_ports: 1, form, route, ..star(4) };
    let mut switch = Switch::new(config).expect("valid");
    for process in 0..4 {
        join(&mut switch, at(100), process, process.into(), both(100));
    }
    beacon_from(&mut switch, at(100), 4, both(100));
    switch
}

/// Passes a frame in until all its copies are forwarded. Returns the output of each, and either its
/// only receiver or the receivers in the list that it is for.
fn runs(switch: &mut Switch, port: u16, bytes: &[u8]) -> Vec<(u16, Result<u32, Range<usize>>)> {
    let (mut frame, mut all) = (bytes.to_vec(), Vec::new());
    loop {
        let verdict = switch.handle_frame(at(200), Port(port), &mut frame);
        let (Verdict::Forward(output) | Verdict::Replicate(output)) = verdict else {
            return all;
        };
        let (header, _) = parse_header(&frame).expect("a copy");
        let run = header.run(64).expect("a part of the list");
        all.push((output.0, if header.is_unaddressed() { Err(run) } else { Ok(header.dst().0) }));
        if let Verdict::Forward(_) = verdict {
            return all;
        }
    }
}

//= spec/ordering.md#R52
#[test]
fn one_copy_serves_all_behind_a_switch() {
    let frame = shared(0, &[1, 9, 10, 11, 2, 12], 150, 180);
    let sent = runs(&mut below_a_root(Form::Chip), 0, &frame);
    assert_eq!(sent, [(1, Ok(1)), (4, Err(1..4)), (2, Ok(2)), (4, Ok(12))]);
    // The switches above an edge forward, and no more.
    let sent = runs(&mut below_a_root(Form::Edge), 0, &frame);
    assert_eq!(sent, [1, 9, 10, 11, 2, 12].map(|to| (if to > 4 { 4 } else { to as u16 }, Ok(to))));
}

//= spec/ordering.md#R52
#[test]
fn copy_of_another_switch_serves_its_part_of_the_list() {
    let mut switch = below_a_root(Form::Chip);
    let frame = shared(9, &[0, 1, 2, 3], 150, 180);
    let (header, _) = parse_header(&frame).expect("a frame");
    let part = |run| {
        let mut part = frame.clone();
        header.write_run(&mut part, run);
        part
    };
    let (sent, rest) = copies(&mut switch, 200, 4, &part(1..3));
    // Only the promises of the processes hold the barrier back.
    assert_eq!((sent.as_slice(), rest), ([(1, 1, 11, 100), (2, 2, 12, 100)].as_slice(), None));
    // A part that the list does not have, and receivers that are not below.
    let malformed = switch.stats().dropped_malformed;
    assert_eq!(runs(&mut switch, 4, &part(3..5)), []);
    assert_eq!(switch.stats().dropped_malformed, malformed + 1);
    assert_eq!(runs(&mut switch, 4, &shared(9, &[10, 11], 150, 180)), []);
    assert_eq!(switch.stats().dropped_back, 2);
}

//= spec/ordering.md#R52
#[test]
fn frames_of_two_inputs_are_copied_alternately() {
    let mut switch = below_a_root(Form::Chip);
    let mut frames = [shared(0, &[1, 2, 3], 150, 180), shared(9, &[1, 2, 3], 150, 180)];
    let mut sent = Vec::new();
    for _ in 0..3 {
        for (frame, input) in frames.iter_mut().zip([0, 4]) {
            let verdict = switch.handle_frame(at(200), Port(input), frame);
            let (Verdict::Forward(output) | Verdict::Replicate(output)) = verdict else {
                panic!("{verdict:?} after {sent:?}");
            };
            sent.push(output.0);
        }
    }
    assert_eq!(sent, [1, 1, 2, 2, 3, 3]);
}

//= spec/ordering.md#R52
#[test]
fn switches_that_only_forward_send_no_unaddressed_frames() {
    for form in [Form::Edge, Form::OffChip] {
        let mut switch = below_a_root(form);
        let (sent, rest) = copies(&mut switch, 200, 4, &shared(9, &[1, 2], 150, 160));
        assert_eq!((sent.as_slice(), rest), ([].as_slice(), Some(Verdict::Dropped)), "{form:?}");
        assert_eq!(switch.stats().dropped_malformed, 1);
    }
}
