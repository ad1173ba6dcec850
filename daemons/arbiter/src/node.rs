//! The machine, as the driver drives it.

use onepipe_arbiter::{Arbiter, ArbiterEvent};
use onepipe_base::{Machine, Mono, Now, Port, Transmit, Verdict};
use onepipe_transport_driver::Pipe;

/// An arbiter, which knows nothing of promises.
#[derive(Debug)]
pub(crate) struct Node(pub Arbiter);

impl Machine for Node {
    type Event = ArbiterEvent;

    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        self.0.handle_frame(now, port, frame)
    }

    fn handle_timeout(&mut self, now: Now) {
        self.0.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        self.0.poll_transmit(now, slot)
    }

    fn poll_event(&mut self) -> Option<ArbiterEvent> {
        self.0.poll_event()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        self.0.poll_timeout()
    }
}

impl Pipe for Node {}
