//! A switch on the bench: frames are made, handed in and read back by hand.
#![allow(dead_code, reason = "each test program uses its own part of the rig")]

use onepipe_base::{
    Incarnation, Machine, Mono, Now, Port, ProcessId, Promises, Psn, Timestamp, Verdict,
};
use onepipe_switch::{Config, Switch, SwitchEvent};
use onepipe_topology::{Route, Table};
use onepipe_wire::{HEADER_OCTETS, Header, Opcode, peek, seal, seal_with_hops};

/// Both clocks at once; the synchronised one is `OFFSET_NS` ahead of the local one.
/// A multiple of every beacon interval in use, so that instants are round numbers.
pub const OFFSET_NS: u64 = 1_125_900_000_000_000;

pub fn at(mono: u64) -> Now {
    Now { mono: Mono::from_ns(mono), sync: ts(mono) }
}

/// The timestamp `ns` after the tests' origin.
pub fn ts(ns: u64) -> Timestamp {
    Timestamp::from_ns(OFFSET_NS + ns)
}

pub fn both(ns: u64) -> Promises {
    Promises::both(ts(ns))
}

/// A star that learns who sits where, with its eager mode, start wait and periodic beacons off:
/// each test turns on what it is about.
pub fn star(ports: u16) -> Config {
    Config {
        beacon_interval_ns: 0,
        start_wait_ns: 0,
        ..Config::new(ports, 0, Route::Table(Table::new(64, false)))
    }
}

/// Whom a switch's beacon comes from.
pub const NOBODY: u32 = u32::MAX;

pub type Octets = [u8; HEADER_OCTETS];

pub fn frame(opcode: Opcode, src: u32, dst: u32, promises: Promises) -> Octets {
    frame_with_hops(opcode, src, dst, promises, onepipe_wire::HOPS_MAX)
}

pub fn frame_with_hops(opcode: Opcode, src: u32, dst: u32, promises: Promises, hops: u8) -> Octets {
    let mut octets = [0; HEADER_OCTETS];
    let header = Header::new(opcode, ProcessId(src), ProcessId(dst), Incarnation(1));
    let header = header.stamped(promises.barrier, promises, Psn::FIRST);
    seal_with_hops(&mut octets, header, 0, hops);
    octets
}

pub fn octets_of(header: Header) -> Octets {
    let mut octets = [0; HEADER_OCTETS];
    seal(&mut octets, header, 0);
    octets
}

/// Hands a frame in.
pub fn put(switch: &mut Switch, now: Now, port: u16, mut octets: Octets) -> Verdict {
    switch.handle_frame(now, Port(port), &mut octets)
}

/// Hands a frame in that must be forwarded; answers the output port and what it says there.
pub fn pass(switch: &mut Switch, now: Now, port: u16, mut octets: Octets) -> (u16, Promises) {
    match switch.handle_frame(now, Port(port), &mut octets) {
        Verdict::Forward(output) => (output.0, promises_of(&octets, now)),
        verdict => panic!("{verdict:?} instead of a forward"),
    }
}

/// Hands a beacon in.
pub fn hear(switch: &mut Switch, now: Now, port: u16, promises: Promises) {
    let verdict = put(switch, now, port, frame(Opcode::Beacon, NOBODY, NOBODY, promises));
    assert_eq!(verdict, Verdict::Consumed);
}

/// Hands a join in.
pub fn join(switch: &mut Switch, now: Now, port: u16, process: u32, promises: Promises) {
    let verdict = put(switch, now, port, frame(Opcode::Join, process, 0, promises));
    assert_eq!(verdict, Verdict::Consumed);
}

pub fn promises_of(octets: &[u8], now: Now) -> Promises {
    peek(octets).expect("a switch sends well-formed frames").0.promises(now.sync)
}

/// All beacons that the switch wants to send now.
pub fn beacons(switch: &mut Switch, now: Now) -> Vec<(u16, Promises)> {
    let (mut slot, mut sent) = ([0; 256], Vec::new());
    while let Some(transmit) = switch.poll_transmit(now, &mut slot) {
        let octets = &slot[..transmit.octets];
        let (header, opcode) = peek(octets).expect("well-formed");
        assert_eq!((opcode, header.hops()), (Opcode::Beacon, 0));
        sent.push((transmit.port.0, promises_of(octets, now)));
    }
    sent
}

pub fn events(switch: &mut Switch) -> Vec<SwitchEvent> {
    core::iter::from_fn(|| switch.poll_event()).collect()
}
