//! One controller and helpers to build its frames.
#![allow(dead_code, reason = "each test uses its part")]

use onepipe_base::{
    Address, Controllers, Incarnation, Instance, Machine, Mono, Now, Port, ProcessId, Promises,
    Psn, SwitchId, Timestamp,
};
use onepipe_controller::{Config, Controller, Epoch, Record};
use onepipe_wire::{
    Announce, DecisionTip, Frame, HEADER_LEN, Header, Link, LinkState, Opcode, Side, Undeliverable,
    seal,
};

/// The replica under test.
pub const CONTROLLER: ProcessId = ProcessId(90);
pub const CONTROLLERS: Controllers = Controllers { first: CONTROLLER, count: 2 };

pub fn at(ns: u64) -> Now {
    Now { mono: Mono::from_ns(ns), sync: Timestamp::from_ns(ns + (1 << 50)) }
}

pub fn instance(address: Address, incarnation: u32) -> Instance {
    Instance { address, incarnation: Incarnation(incarnation) }
}

pub fn process(number: u32) -> Address {
    Address::Process(ProcessId(number))
}

pub fn switch(number: u32) -> Address {
    Address::Switch(SwitchId(number))
}

pub fn config() -> Config {
    Config {
        processes_max: 100,
        switches_max: 10,
        incarnation: Incarnation(1),
        ..Config::new(CONTROLLER, CONTROLLERS)
    }
}

pub fn frame(
    opcode: Opcode,
    from: Instance,
    psn: u32,
    write: impl FnOnce(&mut [u8]) -> usize,
) -> Vec<u8> {
    frame_stamped((opcode, at(0).sync), from, psn, write)
}

/// Returns a frame from process 0 to process 1, wrapped for the controller to relay it.
pub fn relay_0_to_1() -> Vec<u8> {
    frame(Opcode::Relay, instance(process(0), 1), 0, |buf| {
        let now = at(0).sync;
        let header = Header::new(Opcode::Data, ProcessId(0), ProcessId(1), Incarnation(1));
        seal(buf, header.stamped(now, Promises::both(now), Psn(0)), 0)
    })
}

fn frame_stamped(
    (opcode, stamp): (Opcode, Timestamp),
    from: Instance,
    psn: u32,
    write: impl FnOnce(&mut [u8]) -> usize,
) -> Vec<u8> {
    let mut slot = vec![0; 1_500];
    let bytes = write(&mut slot[HEADER_LEN..]);
    let src = ProcessId(from.address.to_bits());
    let header = Header::new(opcode, src, CONTROLLER, from.incarnation);
    let header = header.stamped(stamp, Promises::both(at(0).sync), Psn(psn));
    let length = seal(&mut slot, header, bytes);
    slot.truncate(length);
    slot
}

pub fn link(port: u16, side: Side, instance: Instance) -> Link {
    Link { port: Port(port), side, instance: Some(instance), state: LinkState::Up }
}

pub fn announce(from: Instance, generation: u32, links: &[Link]) -> Vec<u8> {
    announce_decided(from, generation, links, at(0).sync)
}

/// As [`announce`], of a process that knows reliable messages to be decided up to `decided`.
pub fn announce_decided(
    from: Instance,
    generation: u32,
    links: &[Link],
    decided: Timestamp,
) -> Vec<u8> {
    let reference = Announce { generation, first: 0, total: links.len() as u16, tip: None };
    announce_part(reference, from, links, decided)
}

/// As [`announce`], of a process that knows the end of the controllers' log.
pub fn announce_tip(from: Instance, generation: u32, links: &[Link], tip: DecisionTip) -> Vec<u8> {
    let tip = Some(tip);
    let reference = Announce { generation, first: 0, total: links.len() as u16, tip };
    announce_part(reference, from, links, at(0).sync)
}

/// Returns one part of an announcement.
pub fn announce_part(
    reference: Announce,
    from: Instance,
    links: &[Link],
    decided: Timestamp,
) -> Vec<u8> {
    frame_stamped((Opcode::Announce, decided), from, 0, |buf| {
        reference.write(buf, links.iter().copied()).expect("fits").1
    })
}

/// Returns the Undeliverable frame `psn` of `from` with one recall.
pub fn undeliverable(from: Instance, psn: u32, recall: Undeliverable) -> Vec<u8> {
    frame_stamped((Opcode::Undeliverable, at(0).sync), from, psn, |buf| {
        Undeliverable::write(buf, [recall].into_iter())
    })
}

/// Drains the controller and acknowledges all records. Returns the frames.
pub fn drain(controller: &mut Controller, now: Now) -> Vec<(Opcode, ProcessId, Psn, Vec<u8>)> {
    let mut sent = Vec::new();
    loop {
        if let Some((id, _)) = controller.poll_persist() {
            controller.handle_persisted(now, id, Ok(()));
            continue;
        }
        let mut slot = [0; 1_500];
        let Some(transmit) = controller.poll_transmit(now, &mut slot) else { break };
        let frame = Frame::parse(&slot[..transmit.bytes]).expect("sealed");
        let payload = frame.payload.to_vec();
        sent.push((frame.opcode, frame.header.dst(), frame.header.psn(), payload));
    }
    while controller.poll_event().is_some() {}
    sent
}

/// Returns the controller of a switch with processes 0 and 1 below it.
pub fn star(records: &[Record]) -> Controller {
    star_with(config(), records)
}

/// As [`star`], with other settings.
pub fn star_with(config: Config, records: &[Record]) -> Controller {
    let mut controller = Controller::new(config).expect("a valid configuration");
    controller.activate(at(0), Epoch(1), records);
    let own = instance(process(CONTROLLER.0), 1);
    let tor = instance(switch(0), 1);
    let links = [
        link(0, Side::Lower, instance(process(0), 1)),
        link(1, Side::Lower, instance(process(1), 1)),
        link(2, Side::Lower, own),
    ];
    controller.handle_frame(at(1_000), Port(0), &mut announce(tor, 1, &links));
    for number in [0, 1] {
        let up = [link(0, Side::Upper, tor)];
        let mut bytes = announce(instance(process(number), 1), 1, &up);
        controller.handle_frame(at(1_000), Port(0), &mut bytes);
    }
    controller.handle_timeout(at(50_000));
    controller
}
