//! One process with its switch and controllers, driven by hand.

use alloc::vec::Vec;

use onepipe_base::{Cause, SwitchId};
use onepipe_wire::{Flood, FloodAck, FloodId, Frame, HEADER_LEN, Resolved, seal, seal_with_hops};

use super::super::*;

pub const FIRST: u32 = 30;
pub const ALL: Option<Controllers> = Some(Controllers { first: ProcessId(FIRST), count: 2 });
pub const ANNOUNCE_NS: u64 = 10_000_000;
/// Near the wrap of 48 bits: failure timestamps lie just behind it.
pub const CLOCK: Timestamp = Timestamp::from_ns((5 << 48) - 1_000);

pub struct Harness {
    pub control: ControlPlane,
    pub registers: Registers,
    pub ns: u64,
}

/// A sent frame: header, opcode and payload.
pub type Sent = (Header, Opcode, Vec<u8>);

impl Harness {
    pub fn new(links: Links, controllers: Option<Controllers>) -> Self {
        let config = Config::new(ProcessId(1), Incarnation(4));
        let config = Config { links, processes_max: 32, frame_len_max: 256, ..config };
        let control = ControlPlane::new(&config, controllers, ANNOUNCE_NS);
        let registers = Registers::new(if links == Links::Mesh { 32 } else { 1 });
        Self { control, registers, ns: 1_000_000 }
    }

    /// A process with a two-way link to its switch, after its first frames were sent.
    pub fn on_switch(controllers: Option<Controllers>) -> Self {
        let mut harness = Self::new(Links::Uplink, controllers);
        harness.beacon();
        harness.drain();
        harness
    }

    pub fn now(&self) -> Mono {
        Mono::from_ns(self.ns)
    }

    pub fn beacon(&mut self) -> LinkEvent {
        let promises = Promises::both(Timestamp::from_ns(self.ns));
        let own = Some(self.control.own);
        let header = Header::hop_only(Opcode::Beacon, switch(), own, promises);
        let (now, port) = (self.now(), Port(0));
        let beacon = Frame { header, opcode: Opcode::Beacon, payload: &[] };
        let event = self.control.on_link_frame(&mut self.registers, now, port, &beacon);
        if matches!(event, LinkEvent::Good | LinkEvent::Restarted(_)) {
            self.registers.update(now, port, promises);
        }
        event
    }

    /// Receives a frame. Returns its effect.
    pub fn receive(&mut self, bytes: &[u8]) -> Effect {
        let frame = Frame::parse(bytes).expect("intact");
        let port = Port(0);
        let now = self.now();
        let event = self.control.on_link_frame(&mut self.registers, now, port, &frame);
        if matches!(event, LinkEvent::Refused | LinkEvent::Dead | LinkEvent::Left) {
            return Effect::Rejected;
        }
        match self.control.on_frame(&mut self.registers, now, CLOCK, port, &frame) {
            Handled::Rejected => Effect::Rejected,
            Handled::Accepted => Effect::Accepted,
            Handled::LinksChanged => Effect::LinksChanged,
            Handled::Relayed(inner) => Effect::Relayed(inner.header.psn().0),
        }
    }

    /// Receives a frame from controller `FIRST + controller_index`.
    pub fn receive_control(
        &mut self,
        controller_index: u32,
        opcode: Opcode,
        psn: u32,
        payload: &[u8],
    ) -> Effect {
        self.receive(&frame_from((FIRST + controller_index, opcode, psn), payload))
    }

    /// Receives a flood from the switch.
    pub fn flood_from_switch(&mut self, payload: &[u8]) -> Effect {
        let promises = Promises::both(Timestamp::from_ns(self.ns));
        let own = Some(self.control.own);
        let header = Header::hop_only(Opcode::Flood, switch(), own, promises);
        let mut bytes = [0; 256];
        bytes[HEADER_LEN..HEADER_LEN + payload.len()].copy_from_slice(payload);
        let length = seal_with_hops(&mut bytes, header, payload.len(), 1);
        self.receive(&bytes[..length])
    }

    /// Takes all frames that are sent now.
    pub fn drain(&mut self) -> Vec<Sent> {
        let now = self.now();
        let is_due = self.control.deadline().is_some_and(|due| due <= now);
        let is_wanted = is_due || self.control.wants_transmit(&self.registers);
        let is_beacon_due = self.control.take_beacon(now);
        let mut all = Vec::new();
        let mut payload = [0; 256 - HEADER_LEN];
        while let Some(frame) = self.control.write_next(now, &self.registers, &mut payload) {
            let promises = Promises::both(CLOCK);
            let header = self.control.header(&self.registers, &frame, promises, None);
            all.push((header, frame.opcode, payload[..frame.payload_len].to_vec()));
            assert!(all.len() < 1_000, "endless sequence of frames");
        }
        assert!(is_wanted || (all.is_empty() && !is_beacon_due), "wants_transmit() was false");
        assert!(!self.control.wants_transmit(&self.registers), "every frame was taken");
        assert!(self.control.deadline().is_none_or(|due| due > now), "a deadline is overdue");
        all
    }

    pub fn opcodes(&mut self) -> Vec<(Opcode, u32)> {
        self.drain().iter().map(|(header, opcode, _)| (*opcode, header.dst().0)).collect()
    }

    pub fn acks(&mut self) -> Vec<(Opcode, FloodId)> {
        let mut all = self.drain();
        all.retain(|(_, opcode, _)| matches!(opcode, Opcode::FloodAck | Opcode::Completed));
        let id = |payload: &[u8]| FloodAck::parse(payload).expect("an acknowledgement").id;
        all.iter().map(|(_, opcode, payload)| (*opcode, id(payload))).collect()
    }

    pub fn failures(&mut self) -> Vec<(u32, u32, u64)> {
        let next = || self.control.poll_failure();
        let flood = core::iter::from_fn(next);
        flood.map(|failure| (failure.first.0, failure.count, failure.at.as_ns())).collect()
    }
}

#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    Rejected,
    Accepted,
    LinksChanged,
    Relayed(u32),
}

pub fn switch() -> Instance {
    Instance { address: Address::Switch(SwitchId(5)), incarnation: Incarnation(9) }
}

/// Returns a frame from process `src` to the process under test.
pub fn frame_from((src, opcode, psn): (u32, Opcode, u32), payload: &[u8]) -> Vec<u8> {
    let header = Header::new(opcode, ProcessId(src), ProcessId(1), Incarnation(1));
    let header = header.stamped(CLOCK, Promises::both(CLOCK), Psn(psn));
    let mut bytes = alloc::vec![0; HEADER_LEN + payload.len()];
    bytes[HEADER_LEN..].copy_from_slice(payload);
    seal(&mut bytes, header, payload.len());
    bytes
}

pub fn id(epoch: u32, sequence: u32) -> FloodId {
    FloodId { epoch, sequence }
}

pub fn failure(first: u32, count: u32, incarnation: u32) -> Failure {
    let at = CLOCK.wrapping_add_ns(1_500);
    Failure {
        first: ProcessId(first),
        count,
        incarnation: Incarnation(incarnation),
        at,
        cause: Cause::TimedOut,
    }
}

pub fn notice(id: FloodId, failures: &[Failure]) -> Vec<u8> {
    let mut buf = alloc::vec![0; 204];
    let written = Flood { id }.write_notice(&mut buf, failures.iter().copied());
    buf.truncate(written.expect("fits").1);
    buf
}

pub fn resume(id: FloodId, owner: Instance, number: u32) -> Vec<u8> {
    let mut buf = alloc::vec![0; 204];
    let written = Flood { id }.write_resume(&mut buf, [Resolved { owner, number }].into_iter());
    buf.truncate(written.expect("fits").1);
    buf
}
