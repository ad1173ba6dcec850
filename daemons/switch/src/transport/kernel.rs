//! The kernel's switch: what the transport of the daemon leaves to it.

use onepipe_base::Port;
use onepipe_switch::SwitchEvent;
use onepipe_topology::Route;
use onepipe_transport_udp::FrameRange;
use onepipe_wire::{Opcode, opcode_unchecked};

use super::SwitchTransport;
use crate::data_path::{DataPath, Detoured};

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

    /// Returns which frame this is, if the kernel's switch has passed it up and awaits its copies.
    pub(super) fn take_stamp(&mut self, port: Port, range: FrameRange) -> Option<Detoured> {
        let data_path = self.data_path.as_ref()?;
        data_path.take_stamp(port, self.socket.frame(range), self.now)
    }

    /// Returns whether the daemon must not forward a frame of `port`: an ordered frame, because its
    /// promise counts in the program only, or an address advertisement, because messages between
    /// the advertised addresses would bypass the program's registers. Shared frames are replicated
    /// here, but only those of links that the program has.
    pub(super) fn is_for_kernel(&mut self, port: Port, range: FrameRange) -> bool {
        let Some(data_path) = &self.data_path else { return false };
        let is_replicated_here = data_path.has(port);
        opcode_unchecked(self.socket.frame(range)).is_some_and(|opcode| match opcode {
            Opcode::AddressAd => true,
            opcode if opcode.is_shared() => !is_replicated_here,
            opcode => !(opcode.is_control() || opcode.is_hop_only()),
        })
    }
}
