//! A host whose frames wait for their timeslots.

use onepipe_arbiter::Client;
use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Transmit, Verdict};
use onepipe_sim_traffic::{Guest, Stack};
use onepipe_wire::{Opcode, parse_header};

/// What can be asked for a frame to somebody there is room for.
pub trait PacketSource: Machine {
    /// Writes the next frame to one of those there is room for, and says to whom and how long it
    /// is.
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

/// A machine whose frames travel in timeslots that an arbiter has granted, as packets behind a
/// [`Client`]. It is not asked for more to a destination than its client has room for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gated<M> {
    /// What has something to send.
    pub source: M,
    /// What waits for timeslots.
    pub client: Client,
    card: Port,
    /// The frame under way from one to the other.
    frame: Vec<u8>,
}

impl<M: PacketSource> Gated<M> {
    /// The two, behind the network card at `card`.
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

    /// Hands the client what the tenant has, as far as there is room.
    fn pump(&mut self, now: Now) {
        let Self { source, client, frame, .. } = self;
        loop {
            let config = client.config();
            let (each, all) = (config.queue_slots_max, config.slots_max);
            let has_space = &mut |to| client.queued(to) < each && client.backlog() < all;
            let Some((to, bytes)) = source.poll_to(now, frame, has_space) else { return };
            // What finds no room all the same was sent without asking, and is lost.
            let _ = client.enqueue(to, &frame[..bytes]);
        }
    }

    /// Hands the tenant the packets that came in a timeslot.
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
