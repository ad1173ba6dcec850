//! Which port leads to whom.

use onepipe_base::{Port, ProcessId};
use onepipe_wire::Opcode;

use super::Endpoint;
use crate::Links;

/// Where an overlay's messages come and go, past the aggregator.
const DIRECT: Port = Port(1);

impl Endpoint {
    /// Whether `port` leads past all aggregators.
    #[inline]
    pub(super) fn is_direct(&self, port: Port) -> bool {
        self.config.links == Links::Overlay && port == DIRECT
    }

    /// Whether a frame of `src` may come by `port`: past the aggregators nobody speaks of links.
    #[inline]
    pub(super) fn accepts_from(&self, port: Port, src: ProcessId, opcode: Opcode) -> bool {
        match self.config.links {
            Links::Uplink => port == Port(0),
            Links::Overlay => port == Port(0) || (port == DIRECT && opcode.service().is_some()),
            Links::Mesh => src.0 == u32::from(port.0),
        }
    }

    /// The way of messages to `to`.
    #[inline]
    pub(super) fn port_to(&self, to: ProcessId) -> Port {
        match self.config.links {
            Links::Overlay => DIRECT,
            _ => self.control_port_to(to),
        }
    }

    /// The way of frames that speak of links: past no switch.
    #[inline]
    pub(super) fn control_port_to(&self, to: ProcessId) -> Port {
        match self.config.links {
            Links::Uplink | Links::Overlay => Port(0),
            Links::Mesh => Port(to.0 as u16),
        }
    }
}
