//! The machine, as the driver drives it.

use onepipe_base::{Machine, Mono, Now, Port, Transmit, Verdict};
use onepipe_switch::{Switch, SwitchEvent};
use onepipe_transport_driver::DrivenMachine;

/// A switch machine whose links can end for certain: a lower port is unplugged and may be given to
/// somebody else; the switch above stays where it is, and may come back.
#[derive(Debug)]
pub(crate) struct Chip {
    pub(crate) switch: Switch,
    /// When it was last at work.
    awake: Option<Mono>,
    nap_ns_max: u64,
}

impl Chip {
    /// A machine that is excused when it was not at work for an eighth of its link timeout: what a
    /// busy machine does to every process now and then. It has then more to read than one turn
    /// takes, and to miss a neighbour by what is read first would be rash.
    pub(crate) fn new(switch: Switch) -> Self {
        let nap_ns_max = switch.config().link_timeout_ns / 8;
        Self { switch, awake: None, nap_ns_max }
    }

    #[inline]
    fn wake(&mut self, now: Now) {
        let before = self.awake.replace(now.mono);
        if before.is_some_and(|before| now.mono.since_ns(before) > self.nap_ns_max) {
            self.switch.excuse(now);
        }
    }
}

impl Machine for Chip {
    type Event = SwitchEvent;

    #[inline]
    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        self.wake(now);
        self.switch.handle_frame(now, port, frame)
    }

    fn handle_timeout(&mut self, now: Now) {
        self.wake(now);
        self.switch.handle_timeout(now);
    }

    #[inline]
    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        self.switch.poll_transmit(now, slot)
    }

    #[inline]
    fn poll_event(&mut self) -> Option<SwitchEvent> {
        self.switch.poll_event()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        self.switch.poll_timeout()
    }
}

impl DrivenMachine for Chip {
    fn handle_link_down(&mut self, port: Port) {
        if port.0 < self.switch.config().lower_ports {
            self.switch.unplug(port);
        } else {
            self.switch.lose(port);
        }
    }
}
