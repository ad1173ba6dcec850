//! A switch and helpers to build and read its frames.
#![allow(dead_code, reason = "each test program uses its own part of the harness")]

use onepipe_base::{
    Address, Controllers, Incarnation, Instance, Machine, Mono, Now, Port, ProcessId, Promises,
    Psn, SwitchId, Timestamp, Verdict,
};
use onepipe_switch::{Config, Eager, Switch, SwitchEvent};
use onepipe_topology::{ForwardingTable, Route};
use onepipe_wire::{Frame, HEADER_LEN, Header, Opcode, parse_header, seal, seal_with_hops};

/// Both clocks at once; the synchronised one is `OFFSET_NS` ahead of the local one. A multiple of
/// every beacon interval in use, so that instants are round numbers.
pub const OFFSET_NS: u64 = 1_125_900_000_000_000;

pub fn at(mono: u64) -> Now {
    Now { mono: Mono::from_ns(mono), sync: ts(mono) }
}

/// Returns the timestamp `ns` after the tests' origin.
pub fn ts(ns: u64) -> Timestamp {
    Timestamp::from_ns(OFFSET_NS + ns)
}

pub fn both(ns: u64) -> Promises {
    Promises::both(ts(ns))
}

/// Returns the configuration of a star that learns its routes, with eager beacons, start wait and
/// periodic beacons off: each test turns on what it is about.
pub fn star(ports: u16) -> Config {
    Config {
        beacon_interval_ns: 0,
        eager_beacons: Eager::Never,
        start_wait_ns: 0,
        ..Config::new(ports, 0, Route::ForwardingTable(ForwardingTable::new(64, false)))
    }
}

/// The only controller of the tests' fabrics.
pub const CONTROLLER: u32 = 60;

/// As [`star`], in a fabric with a controller.
pub fn guarded(ports: u16) -> Config {
    let first = ProcessId(CONTROLLER);
    Config {
        switch: SwitchId(1),
        incarnation: Incarnation(5),
        beacon_interval_ns: 3_000,
        controllers: Some(Controllers { first, count: 1 }),
        ..star(ports)
    }
}

/// The instance of a switch configured by [`guarded`].
pub const OWN: Instance = instance_of(Address::Switch(SwitchId(1)), 5);

pub const fn instance_of(address: Address, incarnation: u32) -> Instance {
    Instance { address, incarnation: Incarnation(incarnation) }
}

pub const fn process(id: u32, incarnation: u32) -> Instance {
    instance_of(Address::Process(ProcessId(id)), incarnation)
}

/// Returns a hop-only frame.
pub fn of_link(
    opcode: Opcode,
    own: Instance,
    ack_from: Option<Instance>,
    promises: Promises,
) -> Bytes {
    let mut bytes = [0; HEADER_LEN];
    seal_with_hops(&mut bytes, Header::hop_only(opcode, own, ack_from, promises), 0, 1);
    bytes
}

/// Delivers a beacon of `instance`, which names `peer`.
pub fn beacon(
    switch: &mut Switch,
    now: Now,
    port: u16,
    (instance, ack_from): (Instance, Option<Instance>),
    promises: Promises,
) -> Verdict {
    put(switch, now, port, of_link(Opcode::Beacon, instance, ack_from, promises))
}

/// A frame sent by the switch itself.
pub struct Sent {
    pub port: u16,
    pub opcode: Opcode,
    pub header: Header,
    pub payload: Vec<u8>,
}

/// Returns everything that the switch sends now.
pub fn sent(switch: &mut Switch, now: Now) -> Vec<Sent> {
    sent_in(switch, now, 1_472)
}

/// As [`sent`], with a slot of `slot_bytes` bytes.
pub fn sent_in(switch: &mut Switch, now: Now, slot_bytes: usize) -> Vec<Sent> {
    let (mut slot, mut sent) = (vec![0; slot_bytes], Vec::new());
    while let Some(transmit) = switch.poll_transmit(now, &mut slot) {
        let frame = Frame::parse(&slot[..transmit.bytes]).expect("well-formed");
        let (header, opcode) = (frame.header, frame.opcode);
        sent.push(Sent { port: transmit.port.0, opcode, header, payload: frame.payload.to_vec() });
    }
    sent
}

/// Returns the ports of the frames with this opcode.
pub fn ports_of(sent: &[Sent], opcode: Opcode) -> Vec<u16> {
    sent.iter().filter(|sent| sent.opcode == opcode).map(|sent| sent.port).collect()
}

/// Lets time pass, with all timers, until `end`. Returns everything sent.
pub fn run(switch: &mut Switch, end: u64) -> Vec<Sent> {
    let mut all = Vec::new();
    while let Some(due) = switch.poll_timeout().filter(|due| due.as_ns() <= end) {
        switch.handle_timeout(at(due.as_ns()));
        all.extend(sent(switch, at(due.as_ns())));
    }
    all
}

/// Stands for a process in a switch's beacon, in a fabric without controllers.
pub const NO_PROCESS: u32 = u32::MAX;

pub type Bytes = [u8; HEADER_LEN];

pub fn frame(opcode: Opcode, src: u32, dst: u32, promises: Promises) -> Bytes {
    frame_with_hops(opcode, src, dst, promises, onepipe_wire::HOPS_MAX)
}

pub fn frame_with_hops(opcode: Opcode, src: u32, dst: u32, promises: Promises, hops: u8) -> Bytes {
    let mut bytes = [0; HEADER_LEN];
    let header = Header::new(opcode, ProcessId(src), ProcessId(dst), Incarnation(1));
    let header = header.stamped(promises.barrier, promises, Psn::FIRST);
    seal_with_hops(&mut bytes, header, 0, hops);
    bytes
}

pub fn bytes_of(header: Header) -> Bytes {
    let mut bytes = [0; HEADER_LEN];
    seal(&mut bytes, header, 0);
    bytes
}

/// Delivers a frame.
pub fn put(switch: &mut Switch, now: Now, port: u16, mut bytes: Bytes) -> Verdict {
    switch.handle_frame(now, Port(port), &mut bytes)
}

/// Delivers a frame that must be forwarded. Returns the output port and the promises there.
pub fn pass(switch: &mut Switch, now: Now, port: u16, mut bytes: Bytes) -> (u16, Promises) {
    match switch.handle_frame(now, Port(port), &mut bytes) {
        Verdict::Forward(output) => (output.0, promises_of(&bytes, now)),
        verdict => panic!("{verdict:?} instead of a forward"),
    }
}

/// Delivers a beacon.
pub fn beacon_from(switch: &mut Switch, now: Now, port: u16, promises: Promises) {
    let verdict = put(switch, now, port, frame(Opcode::Beacon, NO_PROCESS, NO_PROCESS, promises));
    assert_eq!(verdict, Verdict::Consumed);
}

/// Delivers a join.
pub fn join(switch: &mut Switch, now: Now, port: u16, process: u32, promises: Promises) {
    let verdict = put(switch, now, port, frame(Opcode::Join, process, 0, promises));
    assert_eq!(verdict, Verdict::Consumed);
}

pub fn promises_of(bytes: &[u8], now: Now) -> Promises {
    parse_header(bytes).expect("a switch sends well-formed frames").0.promises(now.sync)
}

/// Returns all beacons that the switch sends now, and nothing else.
pub fn beacons(switch: &mut Switch, now: Now) -> Vec<(u16, Promises)> {
    let sent = frames_sent(switch, now).into_iter().map(|(opcode, port, promises)| {
        assert_eq!(opcode, Opcode::Beacon);
        (port, promises)
    });
    sent.collect()
}

/// Returns all frames that the switch sends now by itself.
pub fn frames_sent(switch: &mut Switch, now: Now) -> Vec<(Opcode, u16, Promises)> {
    let (mut slot, mut sent) = ([0; 256], Vec::new());
    while let Some(transmit) = switch.poll_transmit(now, &mut slot) {
        let bytes = &slot[..transmit.bytes];
        let (header, opcode) = parse_header(bytes).expect("well-formed");
        assert_eq!(header.hops(), 0);
        sent.push((opcode, transmit.port.0, promises_of(bytes, now)));
    }
    sent
}

pub fn events(switch: &mut Switch) -> Vec<SwitchEvent> {
    core::iter::from_fn(|| switch.poll_event()).collect()
}
