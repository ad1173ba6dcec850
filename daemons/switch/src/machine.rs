//! The machine in the form that the driver runs.

use onepipe_base::{Cause, Machine, Mono, Now, Port, Promises, Transmit, Verdict};
use onepipe_switch::{Switch, SwitchEvent};
use onepipe_transport_driver::DrivenMachine;

/// A switch machine whose links can be reported down: a lower port is unplugged and may be assigned
/// again; the uplink stays where it is, and may come back.
#[derive(Debug)]
pub(crate) struct SwitchMachine {
    pub(crate) switch: Switch,
    /// Time of its last call.
    last_active: Option<Mono>,
    stall_ns_max: u64,
}

impl SwitchMachine {
    /// Creates a machine that handles a stall when it was called later than it asked for by an
    /// eighth of its link timeout, as happens to every process on a busy machine. It has then more
    /// to read than one turn takes, so neighbours must not time out before that is read.
    pub(crate) fn new(switch: Switch) -> Self {
        let stall_ns_max = switch.config().link_timeout_ns / 8;
        Self { switch, last_active: None, stall_ns_max }
    }

    #[inline]
    fn note_activity(&mut self, now: Now) {
        let before = self.last_active.replace(now.mono);
        if before.is_some_and(|before| now.mono.since_ns(before) > self.stall_ns_max) {
            // At rest it is called once in a heartbeat only.
            let due = self.switch.poll_timeout();
            if due.is_some_and(|due| now.mono.since_ns(due) > self.stall_ns_max) {
                self.switch.handle_stall(now);
            }
        }
    }
}

impl Machine for SwitchMachine {
    type Event = SwitchEvent;

    #[inline]
    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        self.note_activity(now);
        self.switch.handle_frame(now, port, frame)
    }

    fn handle_timeout(&mut self, now: Now) {
        self.note_activity(now);
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

impl DrivenMachine for SwitchMachine {
    fn handle_promises(&mut self, now: Now, port: Port, promises: Promises) {
        self.note_activity(now);
        self.switch.handle_promises(now, port, promises);
    }

    fn handle_link_down(&mut self, port: Port, cause: Cause) {
        if port.0 < self.switch.config().lower_ports {
            self.switch.unplug(port, cause);
        } else {
            self.switch.mark_link_lost(port);
        }
    }
}
