//! A host whose frames wait for granted timeslots.

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
}

impl<M: PacketSource> Gated<M> {
    /// Connects the two behind the network card at port `card`.
    pub fn new(source: M, client: Client, card: Port) -> Self {
        let frame = vec![0; client.config().frame_len_max];
        Self { source, client, card, frame }
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
        let transmit = self.client.poll_transmit(now, slot)?;
        Some(Transmit { port: self.card, ..transmit })
    }

    fn poll_event(&mut self) -> Option<M::Event> {
        while self.client.poll_event().is_some() {}
        self.source.poll_event()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        Mono::earlier(self.source.poll_timeout(), self.client.poll_timeout())
    }
}
