//! A process that leaves: what it has acknowledged is delivered or handed back, what arrives later
//! is refused, and its Leave is repeated until the switch acknowledges it.

use crate::harness;

use harness::{Harness, ORIGIN_NS, TestFrame, connect, data};
use onepipe_base::{
    Address, Incarnation, Instance, Machine, Port, ProcessId, Promises, SwitchId, Timestamp,
};
use onepipe_endpoint::{Event, Links};
use onepipe_wire::{Header, Opcode, Recall, parse_header, seal};

fn reliable(opcode: Opcode, frame: TestFrame) -> TestFrame {
    TestFrame { opcode, ..frame }
}

fn at(ns: u64) -> Timestamp {
    Timestamp::from_ns(ORIGIN_NS + ns)
}

/// Process 0 with one acknowledged message of process 1 in each service, at 20 and 30 us. The
/// barriers are at 10 us.
fn with_undelivered() -> Harness {
    let mut harness = Harness::new(|config| config.link_timeout_ns = 0);
    harness.receive_at(1, 1, &connect(0, 0, 0), at(10_000), at(10_000));
    let open = reliable(Opcode::ReliableConnect, connect(0, 0, 0));
    harness.receive_at(1, 1, &open, at(10_000), at(10_000));
    harness.receive_at(1, 1, &data(0, b"best effort"), at(20_000), at(10_000));
    let message = reliable(Opcode::ReliableData, data(0, b"reliable"));
    harness.receive_at(1, 1, &message, at(30_000), at(10_000));
    harness.wait(100_000);
    assert_eq!(harness.end.pending(), 2);
    harness
}

fn promise(harness: &mut Harness, ns: u64) {
    let now = harness.now();
    harness.end.handle_promises(now, Port(1), Promises::both(at(ns)));
    harness.take_events();
}

//= spec/ordering.md#R56
#[test]
fn leave_waits_for_what_it_has_acknowledged() {
    let mut harness = with_undelivered();
    harness.end.leave();
    harness.wait(1_000_000);
    assert!(!harness.end.has_left(), "two acknowledged messages are undelivered");
    promise(&mut harness, 25_000);
    assert!(!harness.end.has_left());
    promise(&mut harness, 35_000);
    assert_eq!((harness.delivered, harness.end.has_left()), (2, true));
}

//= spec/ordering.md#R56
#[test]
fn leaving_process_refuses_new_messages() {
    let mut harness = with_undelivered();
    harness.end.leave();
    harness.sent.clear();
    harness.receive_at(1, 1, &data(1, b"too late"), at(40_000), at(10_000));
    assert_eq!(harness.take_sent(Opcode::Nak, 1).len(), 1);
    let message = reliable(Opcode::ReliableData, data(1, b"too late"));
    harness.receive_at(1, 1, &message, at(50_000), at(10_000));
    assert_eq!(harness.take_sent(Opcode::ReliableNak, 1).len(), 1);
    promise(&mut harness, 60_000);
    assert_eq!(harness.delivered, 2);
    // The sender of the reliable one waits for the acknowledgement of its recall.
    assert!(!harness.end.has_left());
    let mut body = vec![0; 64];
    let len = Recall::write(&mut body, [at(50_000)].into_iter());
    body.truncate(len);
    let recall = TestFrame { opcode: Opcode::Recall, psn: 0, flags: 0, body };
    harness.receive_at(1, 1, &recall, at(60_000), at(60_000));
    harness.wait(100_000);
    assert_eq!(harness.take_sent(Opcode::RecallAck, 1).len(), 1);
    assert!(harness.end.has_left());
}

//= spec/ordering.md#R58
#[test]
fn undelivered_messages_are_handed_back_in_order() {
    let mut harness = with_undelivered();
    harness.end.leave();
    harness.wait(1_000_000);
    harness.end.hand_back();
    let mut handed_back = Vec::new();
    harness.drain();
    while let Some(event) = harness.end.poll_event() {
        let Event::Undelivered(delivery) = event else { panic!("{event:?}") };
        handed_back.push((delivery.timestamp, harness.end.payload(&delivery).to_vec()));
        harness.end.release(delivery);
    }
    let expected = [(at(20_000), b"best effort".to_vec()), (at(30_000), b"reliable".to_vec())];
    assert_eq!(handed_back, expected);
    assert!(harness.end.has_left());
    assert_eq!(harness.end.receive_buffer_bytes(), 0);
}

const SWITCH: Instance =
    Instance { address: Address::Switch(SwitchId(5)), incarnation: Incarnation(1) };

fn frame_of_switch(harness: &mut Harness, opcode: Opcode, peer: Incarnation) {
    let own = Instance { address: Address::Process(ProcessId(0)), incarnation: peer };
    let promises = Promises::both(harness.now().sync);
    let header = Header::hop_only(opcode, SWITCH, Some(own), promises);
    let mut bytes = vec![0; 64];
    let len = seal(&mut bytes, header, 0);
    let now = harness.now();
    harness.end.handle_frame(now, Port(0), &mut bytes[..len]);
    harness.drain();
}

fn behind_switch() -> Harness {
    let mut harness = Harness::new(|config| {
        config.links = Links::Uplink;
        config.link_timeout_ns = 30_000_000;
    });
    frame_of_switch(&mut harness, Opcode::Beacon, Incarnation(1));
    harness.end.leave();
    harness.sent.clear();
    harness.drain();
    harness
}

fn leaves(harness: &Harness) -> usize {
    let is_leave =
        |bytes: &&Vec<u8>| parse_header(bytes).is_ok_and(|(_, opcode)| opcode == Opcode::Leave);
    harness.sent.iter().filter(is_leave).count()
}

//= spec/ordering.md#R57
#[test]
fn leave_is_repeated_until_acknowledged() {
    let mut harness = behind_switch();
    assert_eq!((leaves(&harness), harness.end.has_left()), (1, false));
    harness.wait(10_000_000);
    let repeated = leaves(&harness);
    assert!((3..20).contains(&repeated), "{repeated}");
    assert_eq!(repeated, harness.sent.len(), "nothing else leaves any more");
    frame_of_switch(&mut harness, Opcode::LeaveAck, Incarnation(2));
    assert!(!harness.end.has_left(), "the acknowledgement of another incarnation");
    frame_of_switch(&mut harness, Opcode::LeaveAck, Incarnation(1));
    assert!(harness.end.has_left() && !harness.end.is_leave_unacknowledged());
    harness.sent.clear();
    harness.wait(100_000_000);
    assert_eq!(harness.sent.len(), 0);
}

//= spec/ordering.md#R57
#[test]
fn leave_without_a_switch_ends_after_the_link_timeout() {
    let mut harness = behind_switch();
    harness.wait(29_000_000);
    assert!(!harness.end.has_left());
    harness.wait(10_000_000);
    assert!(harness.end.has_left() && harness.end.is_leave_unacknowledged());
}
