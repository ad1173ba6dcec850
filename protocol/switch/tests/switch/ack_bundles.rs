//! Acknowledgements to the processes of one host leave in one frame.

use crate::harness;

use harness::{at, beacon_from, both, join, promises_of, star, ts};
use onepipe_base::{Incarnation, Machine, Port, ProcessId, Psn, Verdict};
use onepipe_switch::{Config, Form, Switch};
use onepipe_topology::{ForwardingTable, Route, Tree};
use onepipe_wire::{
    Ack, AckBundle, AckDelay, Frame, HEADER_LEN, HOPS_MAX, Header, Opcode, parse_header, seal,
};

/// Returns the switch of a host with processes 0 to 3 and a card at port 4, in a fabric of 64 on
/// 16 hosts. All processes have promised 100 ns.
fn host(ack_bundle_ns: u64) -> Switch {
    let (span, host_span) = (4, 4);
    let route = Tree { base: 0, span, child_span: 1, links_per_child: 1, host_span, processes: 64 };
    let route = Route::Tree(route);
    let config = Config { upper_ports: 1, route, ack_bundle_ns, ..star(4) };
    let mut switch = Switch::new(config).expect("valid");
    for process in 0..4 {
        join(&mut switch, at(100), process, process.into(), both(100));
    }
    beacon_from(&mut switch, at(100), 4, both(100));
    switch
}

fn ack(from: u32, to: u32, promise: u64) -> Vec<u8> {
    let mut bytes = vec![0; 256];
    let ack = Ack {
        cumulative: Psn(from),
        received: 0,
        marked: 0,
        window_bytes: 1 << 20,
        consumed_bytes: 0,
        acked_incarnation: 1,
        reservation_id: 0,
        reservation: Ack::RESERVATION_PENDING,
        delay: AckDelay(0),
    };
    let len = ack.write(&mut bytes[HEADER_LEN..], [].into_iter()).expect("it fits");
    let header = Header::new(Opcode::ReliableAck, ProcessId(from), ProcessId(to), Incarnation(1));
    let header = header.stamped(ts(promise), both(promise), Psn::FIRST);
    let frame_len = seal(&mut bytes, header, len);
    bytes.truncate(frame_len);
    bytes
}

fn send(switch: &mut Switch, ns: u64, from: u32, to: u32) -> Verdict {
    switch.handle_frame(at(ns), Port(from as u16), &mut ack(from, to, ns))
}

/// Returns the next frame that is no beacon.
fn poll(switch: &mut Switch, ns: u64) -> Option<(Port, Vec<u8>)> {
    loop {
        let mut slot = vec![0; 2_048];
        let transmit = switch.poll_transmit(at(ns), &mut slot)?;
        slot.truncate(transmit.bytes);
        let (_, opcode) = parse_header(&slot).expect("a frame");
        if opcode != Opcode::Beacon {
            return Some((transmit.port, slot));
        }
    }
}

//= spec/ordering.md#R91
#[test]
fn acknowledgements_to_one_host_leave_together() {
    let mut switch = host(1_000);
    assert_eq!(send(&mut switch, 200, 0, 8), Verdict::Forward(Port(4)), "the first one waits not");
    for from in 1..4 {
        assert_eq!(send(&mut switch, 300 + u64::from(from), from, 8 + from), Verdict::Consumed);
    }
    assert_eq!(send(&mut switch, 310, 0, 12), Verdict::Forward(Port(4)), "to another host");
    assert_eq!(send(&mut switch, 311, 0, 1), Verdict::Forward(Port(1)), "in this host");
    assert!(switch.poll_timeout().is_some_and(|due| due <= at(1_301).mono));
    assert!(poll(&mut switch, 1_300).is_none());
    let (port, mut frame) = poll(&mut switch, 1_301).expect("it is due");
    let (header, opcode) = parse_header(&frame).expect("a frame");
    assert_eq!((port, opcode, header.hops()), (Port(4), Opcode::ReliableAckBundle, HOPS_MAX - 1));
    assert!(header.is_unaddressed());
    // Process 1 has promised least.
    assert_eq!(promises_of(&frame, at(1_301)).barrier, ts(301));
    let bundle = AckBundle::parse(&frame[HEADER_LEN..]).expect("a bundle");
    let ends = |position| bundle.get(position).map(|ack| (ack.from.process.0, ack.to.0));
    assert_eq!([0, 1, 2, 3].map(ends), [Some((1, 9)), Some((2, 10)), Some((3, 11)), None]);
    header.write_copy(&mut frame, (ProcessId(10), Psn(1)));
    let read = Frame::parse_for(&mut frame, ProcessId(10)).expect("a copy");
    assert_eq!((read.opcode, read.header.src()), (Opcode::ReliableAck, ProcessId(2)));
    let stats = switch.stats();
    assert_eq!((stats.acks_bundled, stats.ack_bundles_sent), (3, 1));
    assert!(poll(&mut switch, 1_301).is_none());
}

//= spec/ordering.md#R91
#[test]
fn single_acknowledgement_leaves_in_its_own_frame() {
    let mut switch = host(1_000);
    send(&mut switch, 200, 0, 8);
    assert_eq!(send(&mut switch, 300, 1, 8), Verdict::Consumed);
    let (_, frame) = poll(&mut switch, 1_300).expect("it is due");
    let read = Frame::parse(&frame).expect("a frame");
    let sent = ack(1, 8, 300);
    let alone = Frame::parse(&sent).expect("a frame");
    assert_eq!((read.opcode, read.payload), (alone.opcode, alone.payload));
    assert_eq!(read.header.sender(), alone.header.sender());
    assert_eq!((read.header.dst(), switch.stats().ack_bundles_sent), (ProcessId(8), 0));
}

#[test]
fn only_acknowledgements_of_own_processes_wait() {
    let mut switch = host(1_000);
    send(&mut switch, 200, 0, 8);
    let mut from_above = ack(20, 1, 201);
    let verdict = switch.handle_frame(at(201), Port(4), &mut from_above);
    assert_eq!(verdict, Verdict::Forward(Port(1)));
    let mut damaged = ack(1, 8, 202);
    damaged[HEADER_LEN] ^= 1;
    let verdict = switch.handle_frame(at(202), Port(1), &mut damaged);
    assert_eq!(verdict, Verdict::Forward(Port(4)), "its receiver counts it");
    let mut without = host(0);
    send(&mut without, 200, 0, 8);
    assert_eq!(send(&mut without, 201, 1, 8), Verdict::Forward(Port(4)));
}

#[test]
fn bundles_need_a_chip_and_a_tree() {
    let tree = host(0).config().route.clone();
    let table = Route::ForwardingTable(ForwardingTable::new(64, true));
    for (form, route) in [(Form::Edge, tree), (Form::Chip, table)] {
        let config = Config { form, route, upper_ports: 1, ack_bundle_ns: 1, ..star(4) };
        let error = Switch::new(config).expect_err("no bundles");
        assert_eq!(error.to_string(), "ack_bundle_ns = 1 is out of range");
    }
}
