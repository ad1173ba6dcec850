//! What a host has to send: its TCP and its questions.

use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Transmit, Verdict};
use onepipe_sim_traffic::{Event, Pinger, Pong, Stack};

/// What uses a host's network.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tenants {
    pub stack: Stack,
    pub pinger: Pinger,
}

/// What one of them says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Said {
    Flow(Event),
    Pong(Pong),
}

impl Machine for Tenants {
    type Event = Said;

    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        match Pinger::is_ping(frame) {
            true => self.pinger.handle_frame(now, port, frame),
            false => self.stack.handle_frame(now, port, frame),
        }
    }

    fn handle_timeout(&mut self, now: Now) {
        if self.stack.poll_timeout().is_some_and(|due| due <= now.mono) {
            self.stack.handle_timeout(now);
        }
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        // Questions are few.
        self.pinger.poll_transmit(now, slot).or_else(|| self.stack.poll_transmit(now, slot))
    }

    fn poll_event(&mut self) -> Option<Said> {
        let flow = self.stack.poll_event().map(Said::Flow);
        flow.or_else(|| self.pinger.poll_event().map(Said::Pong))
    }

    fn poll_timeout(&self) -> Option<Mono> {
        Mono::earlier(self.stack.poll_timeout(), self.pinger.poll_timeout())
    }
}

impl Tenants {
    /// Those of `host`, behind one network card.
    pub fn new(config: onepipe_sim_traffic::TcpConfig, host: ProcessId, card: Port) -> Self {
        let stack = Stack::new(config).expect("the defaults are in range");
        Self { stack, pinger: Pinger::new(host, card) }
    }
}
