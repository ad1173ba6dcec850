//! The kernel's switch: what the transport of the daemon leaves to it.

use onepipe_base::Port;
use onepipe_switch::SwitchEvent;
use onepipe_topology::Route;
use onepipe_transport_udp::FrameRange;
use onepipe_wire::{Opcode, header_unchecked, opcode_unchecked};

use super::SwitchTransport;
use crate::data_path::DataPath;

impl SwitchTransport {
    pub(crate) fn data_path(&self) -> Option<&DataPath> {
        self.data_path.as_ref()
    }

    /// Hands changed routes to the kernel's switch: all, or a few in each turn.
    pub(crate) fn copy_routes(&mut self, route: &Route, is_all: bool) {
        if let Some(data_path) = &mut self.data_path {
            data_path.copy_routes(route, is_all);
        }
    }

    /// Hands a change of a link to the kernel's switch.
    pub(super) fn update_data_path(&mut self, event: SwitchEvent) {
        let Some(data_path) = &mut self.data_path else { return };
        match event {
            SwitchEvent::LinkJoined(port) => {
                // The switch above was not admitted, but has answered.
                if Some(port) == self.up
                    && !data_path.has(port)
                    && let Some(address) = self.ports.address(port)
                {
                    data_path.connect(port, address, None);
                }
                data_path.set_live(port, true);
            }
            SwitchEvent::LinkLost(port)
            | SwitchEvent::LinkLeft(port)
            | SwitchEvent::LinkOneWay(port)
            | SwitchEvent::LinkRestarted(port) => data_path.set_live(port, false),
            _ => {}
        }
    }

    /// Returns whether the kernel's switch has passed up a frame of `port` whose copies it awaits.
    pub(super) fn is_detoured(&mut self, port: Port, range: FrameRange) -> bool {
        let Some(data_path) = &self.data_path else { return false };
        let header = header_unchecked(self.socket.frame(range));
        data_path.has(port)
            && header.is_some_and(|header| header.is_shared() && header.is_unaddressed())
    }

    /// Returns whether only the kernel's switch may let a frame of `port` pass: an ordered one,
    /// because its promise counts there, and an advertisement of an address, because messages must
    /// not bypass the registers there.
    pub(super) fn is_for_kernel(&mut self, port: Port, range: FrameRange) -> bool {
        let is_here = self.data_path.as_ref().is_some_and(|data_path| data_path.has(port));
        let mut opcode = || opcode_unchecked(self.socket.frame(range));
        is_here
            && opcode().is_some_and(|opcode| {
                opcode == Opcode::AddressAd
                    || !(opcode.is_control() || opcode.is_hop_only() || opcode.is_shared())
            })
    }
}
