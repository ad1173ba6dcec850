//! What a host has to send: its TCP, its questions, and frames without a protocol.

use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Transmit, Verdict};
use onepipe_sim_traffic::{ConfigError, Event, Pinger, Pong, RawTraffic, Stack, TcpConfig};

use crate::gate::PacketSource;

/// What uses a host's network.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostTraffic {
    /// Its TCP.
    pub stack: Stack,
    /// Its questions.
    pub pinger: Pinger,
    /// Its frames without a protocol.
    pub raw: RawTraffic,
}

/// What one of them says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HostEvent {
    /// The TCP, of one of its flows.
    Flow(Event),
    /// An answer has come.
    Pong(Pong),
}

impl HostTraffic {
    /// Those of a host, behind one network card. Frames without a protocol are as long as a full
    /// segment's.
    ///
    /// # Errors
    /// When the numbers of its TCP make no sense.
    pub fn new(config: TcpConfig) -> Result<Self, ConfigError> {
        let (host, card, bytes) = (config.host, config.card, config.frame_len_max());
        Ok(Self {
            stack: Stack::new(config)?,
            pinger: Pinger::new(host, card),
            raw: RawTraffic::new(host, card, bytes),
        })
    }
}

impl PacketSource for HostTraffic {
    fn poll_to(
        &mut self,
        now: Now,
        slot: &mut [u8],
        has_space: &mut dyn FnMut(ProcessId) -> bool,
    ) -> Option<(ProcessId, usize)> {
        // Questions are few, and asked on time: what finds no room is lost.
        let requests = self.pinger.poll_to(now, slot);
        let requests = requests.or_else(|| self.stack.poll_to(now, slot, &mut *has_space));
        requests.or_else(|| self.raw.poll_to(now, slot, has_space))
    }
}

impl Machine for HostTraffic {
    type Event = HostEvent;

    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        if Pinger::is_ping(frame) {
            self.pinger.handle_frame(now, port, frame)
        } else if RawTraffic::is_raw(frame) {
            self.raw.handle_frame(now, port, frame)
        } else {
            self.stack.handle_frame(now, port, frame)
        }
    }

    fn handle_timeout(&mut self, now: Now) {
        if self.stack.poll_timeout().is_some_and(|due| due <= now.mono) {
            self.stack.handle_timeout(now);
        }
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        let (_, bytes) = self.poll_to(now, slot, &mut |_| true)?;
        Some(Transmit { port: self.stack.config().card, bytes })
    }

    fn poll_event(&mut self) -> Option<HostEvent> {
        let flow = self.stack.poll_event().map(HostEvent::Flow);
        flow.or_else(|| self.pinger.poll_event().map(HostEvent::Pong))
    }

    fn poll_timeout(&self) -> Option<Mono> {
        Mono::earlier(self.stack.poll_timeout(), self.pinger.poll_timeout())
    }
}
