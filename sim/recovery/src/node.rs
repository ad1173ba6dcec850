//! One machine type for every node of the fabric.

use onepipe_base::{Machine, Mono, Now, Port, Transmit, Verdict};
use onepipe_controller::Controller;
use onepipe_endpoint::Endpoint;
use onepipe_node::Host;
use onepipe_sim_network::FabricNode;
use onepipe_switch::{Switch, SwitchEvent};
use onepipe_wire::{Opcode, parse_header};

/// A process behind its virtual switch, a switch, the controller alone, or an idle host.
pub(crate) type Node = FabricNode<Host<Switch, Endpoint>, FilteredSwitch, Controller>;

/// Returns the process of a host, if it runs.
pub(crate) fn process(node: &Node) -> Option<&Endpoint> {
    node.host()?.process(Port(0))
}

/// Returns the process of a host for commands.
pub(crate) fn process_mut(node: &mut Node) -> Option<&mut Endpoint> {
    node.host_mut()?.process_mut(Port(0))
}

/// A switch that may drop announcements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FilteredSwitch {
    pub switch: Switch,
    pub drops_announcements: bool,
}

impl Machine for FilteredSwitch {
    type Event = SwitchEvent;

    #[inline]
    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        match self.drops_announcements && is_announcement(frame) {
            true => Verdict::Dropped,
            false => self.switch.handle_frame(now, port, frame),
        }
    }

    fn handle_timeout(&mut self, now: Now) {
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

    #[inline]
    fn poll_timeout(&self) -> Option<Mono> {
        self.switch.poll_timeout()
    }
}

fn is_announcement(frame: &[u8]) -> bool {
    parse_header(frame).is_ok_and(|(_, opcode)| opcode == Opcode::Announce)
}
