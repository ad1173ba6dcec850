//! What a host has to send: its TCP, its questions, and frames without a protocol.

use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Transmit, Verdict};
use onepipe_sim_traffic::{ConfigError, Event, Pinger, Plain, Pong, Stack, TcpConfig};

use crate::gate::Tenant;

/// What uses a host's network.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tenants {
    /// Its TCP.
    pub stack: Stack,
    /// Its questions.
    pub pinger: Pinger,
    /// Its frames without a protocol.
    pub plain: Plain,
}

/// What one of them says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Said {
    /// The TCP, of one of its flows.
    Flow(Event),
    /// An answer has come.
    Pong(Pong),
}

impl Tenants {
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
            plain: Plain::new(host, card, bytes),
        })
    }
}

impl Tenant for Tenants {
    fn poll_to(
        &mut self,
        now: Now,
        slot: &mut [u8],
        has_room: &mut dyn FnMut(ProcessId) -> bool,
    ) -> Option<(ProcessId, usize)> {
        // Questions are few, and asked on time: what finds no room is lost.
        let asked = self.pinger.poll_to(now, slot);
        let asked = asked.or_else(|| self.stack.poll_to(now, slot, &mut *has_room));
        asked.or_else(|| self.plain.poll_to(now, slot, has_room))
    }
}

impl Machine for Tenants {
    type Event = Said;

    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        if Pinger::is_ping(frame) {
            self.pinger.handle_frame(now, port, frame)
        } else if Plain::is_plain(frame) {
            self.plain.handle_frame(now, port, frame)
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

    fn poll_event(&mut self) -> Option<Said> {
        let flow = self.stack.poll_event().map(Said::Flow);
        flow.or_else(|| self.pinger.poll_event().map(Said::Pong))
    }

    fn poll_timeout(&self) -> Option<Mono> {
        Mono::earlier(self.stack.poll_timeout(), self.pinger.poll_timeout())
    }
}
