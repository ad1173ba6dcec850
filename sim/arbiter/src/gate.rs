//! A host whose frames wait for granted timeslots.

use std::collections::VecDeque;

use onepipe_arbiter::Client;
use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Transmit, Verdict};
use onepipe_sim_traffic::{Guest, Stack};
use onepipe_wire::{Opcode, parse_header};

/// A machine that can be asked for frames to destinations with queue space.
pub trait PacketSource: Machine {
    /// Writes the next frame to a destination for which `has_space` holds. Returns the destination
    /// and the length.
    fn poll_to(
        &mut self,
        now: Now,
        slot: &mut [u8],
        has_space: &mut dyn FnMut(ProcessId) -> bool,
    ) -> Option<(ProcessId, usize)>;
}

impl PacketSource for Stack {
    fn poll_to(
        &mut self,
        now: Now,
        slot: &mut [u8],
        has_space: &mut dyn FnMut(ProcessId) -> bool,
    ) -> Option<(ProcessId, usize)> {
        Self::poll_to(self, now, slot, has_space)
    }
}

/// A machine whose frames travel as packets in granted timeslots, behind a [`Client`]. It is only
/// asked for frames that the client has queue space for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gated<M> {
    /// The source of frames.
    pub source: M,
    /// The queues of packets that wait for timeslots.
    pub client: Client,
    card: Port,
    /// Buffer for a frame between the two.
    frame: Vec<u8>,
    jitter: Option<Jitter>,
}

/// A host that sends late: what becomes due while it is busy elsewhere leaves at once afterwards.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Jitter {
    ns_max: u64,
    /// State of the generator of delays (SplitMix64).
    state: u64,
    /// When the frames leave.
    until: Mono,
    frames: VecDeque<(Transmit, Vec<u8>)>,
}

impl Jitter {
    /// Returns a delay from 0 to the maximum.
    fn draw_ns(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % (self.ns_max + 1)
    }

    /// Takes a frame that is due; the first one of a burst determines when all of them leave.
    fn hold(&mut self, now: Mono, transmit: Transmit, frame: &[u8]) {
        if self.frames.is_empty() {
            self.until = now.after_ns(self.draw_ns());
        }
        self.frames.push_back((transmit, frame.to_vec()));
    }

    /// Writes the next frame whose delay has passed.
    fn poll(&mut self, now: Mono, slot: &mut [u8]) -> Option<Transmit> {
        if now < self.until {
            return None;
        }
        let (transmit, frame) = self.frames.pop_front()?;
        slot[..frame.len()].copy_from_slice(&frame);
        Some(transmit)
    }

    fn due(&self) -> Option<Mono> {
        (!self.frames.is_empty()).then_some(self.until)
    }
}

impl<M: PacketSource> Gated<M> {
    /// Connects the two behind the network card at port `card`.
    pub fn new(source: M, client: Client, card: Port) -> Self {
        let frame = vec![0; client.config().frame_len_max];
        Self { source, client, card, frame, jitter: None }
    }

    /// Returns the host with frames that leave up to `ns_max` late, at random times that `seed`
    /// determines.
    #[must_use]
    pub fn late_by(self, ns_max: u64, seed: u64) -> Self {
        let (until, frames) = (Mono::from_ns(0), VecDeque::new());
        let jitter = Jitter { ns_max, state: seed, until, frames };
        Self { jitter: (ns_max > 0).then_some(jitter), ..self }
    }

    /// Whether a frame is for the client.
    pub fn is_scheduled(frame: &[u8]) -> bool {
        parse_header(frame).is_ok_and(|(_, opcode)| {
            matches!(opcode, Opcode::Fcp | Opcode::Slot | Opcode::Watchdog | Opcode::Drops)
        })
    }

    /// Moves frames from the source to the client while there is space.
    fn pump(&mut self, now: Now) {
        let Self { source, client, frame, .. } = self;
        loop {
            let config = client.config();
            let (each, all) = (config.queue_slots_max, config.slots_max);
            let has_space = &mut |to| client.queued(to) < each && client.backlog() < all;
            let Some((to, bytes)) = source.poll_to(now, frame, has_space) else { return };
            // A frame that was written without asking for space is lost.
            let _ = client.enqueue(to, &frame[..bytes]);
        }
    }

    /// Delivers the packets of a slot frame to the source.
    fn unpack(&mut self, now: Now, port: Port, frame: &[u8]) {
        for packet in Client::packets(frame).into_iter().flatten() {
            let space = &mut self.frame[..packet.len()];
            space.copy_from_slice(packet);
            self.source.handle_frame(now, port, space);
        }
    }
}

impl<M: PacketSource + Guest> Guest for Gated<M> {
    fn takes(&self, frame: &[u8]) -> bool {
        Self::is_scheduled(frame) || self.source.takes(frame)
    }
}

impl<M: PacketSource> Machine for Gated<M> {
    type Event = M::Event;

    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        if !Self::is_scheduled(frame) {
            return self.source.handle_frame(now, port, frame);
        }
        let verdict = self.client.handle_frame(now, port, frame);
        if verdict == Verdict::Consumed {
            self.unpack(now, port, frame);
        }
        verdict
    }

    fn handle_timeout(&mut self, now: Now) {
        let is_due = |due: Option<Mono>| due.is_some_and(|due| due <= now.mono);
        if is_due(self.source.poll_timeout()) {
            self.source.handle_timeout(now);
        }
        if is_due(self.client.poll_timeout()) {
            self.client.handle_timeout(now);
        }
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        self.pump(now);
        let Some(jitter) = &mut self.jitter else {
            let transmit = self.client.poll_transmit(now, slot)?;
            return Some(Transmit { port: self.card, ..transmit });
        };
        while let Some(transmit) = self.client.poll_transmit(now, slot) {
            let transmit = Transmit { port: self.card, ..transmit };
            jitter.hold(now.mono, transmit, &slot[..transmit.bytes]);
        }
        jitter.poll(now.mono, slot)
    }

    fn poll_event(&mut self) -> Option<M::Event> {
        while self.client.poll_event().is_some() {}
        self.source.poll_event()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        let due = Mono::earlier(self.source.poll_timeout(), self.client.poll_timeout());
        Mono::earlier(due, self.jitter.as_ref().and_then(Jitter::due))
    }
}
