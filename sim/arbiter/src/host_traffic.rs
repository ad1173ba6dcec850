//! The traffic of a host: TCP, pings and raw frames.

use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Transmit, Verdict};
use onepipe_sim_traffic::{ConfigError, Event, Pinger, Pong, RawTraffic, Stack, TcpConfig};

use crate::gate::PacketSource;

/// All traffic sources of a host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostTraffic {
    /// The TCP connections of the host.
    pub stack: Stack,
    /// The pings that the host sends.
    pub pinger: Pinger,
    /// Raw frames.
    pub raw: RawTraffic,
}

/// An event of one of the sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HostEvent {
    /// An event of a TCP flow.
    Flow(Event),
    /// A ping reply.
    Pong(Pong),
}

impl HostTraffic {
    /// Creates the sources of a host behind its network card. Raw frames are as long as those of a
    /// full segment.
    ///
    /// # Errors
    /// When a setting of TCP is out of range.
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
        // Pings are few and must be on time: without queue space they are lost.
        let requests = self.pinger.poll_to(now, slot);
        let requests = requests.or_else(|| self.stack.poll_to(now, slot, &mut *has_space));
        requests.or_else(|| self.raw.poll_to(slot, has_space))
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
