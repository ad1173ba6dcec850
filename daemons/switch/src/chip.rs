//! The machine, as the driver drives it.

use onepipe_base::{Machine, Mono, Now, Port, Transmit, Verdict};
use onepipe_switch::{Switch, SwitchEvent};
use onepipe_transport_driver::Pipe;

/// A switch machine whose links can end for certain: a lower port is unplugged and may be given to
/// somebody else; the switch above stays where it is, and may come back.
#[derive(Debug)]
pub(crate) struct Chip(pub(crate) Switch);

impl Machine for Chip {
    type Event = SwitchEvent;

    #[inline]
    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        self.0.handle_frame(now, port, frame)
    }

    fn handle_timeout(&mut self, now: Now) {
        self.0.handle_timeout(now);
    }

    #[inline]
    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        self.0.poll_transmit(now, slot)
    }

    #[inline]
    fn poll_event(&mut self) -> Option<SwitchEvent> {
        self.0.poll_event()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        self.0.poll_timeout()
    }
}

impl Pipe for Chip {
    fn unlink(&mut self, port: Port) {
        if port.0 < self.0.config().lower_ports {
            self.0.unplug(port);
        } else {
            self.0.lose(port);
        }
    }
}
