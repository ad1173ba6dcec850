//! Selects the port for each destination.

use onepipe_base::{Port, ProcessId};
use onepipe_wire::Opcode;

use super::Endpoint;
use crate::Links;

/// The port of an overlay's direct messages, past the aggregator.
const DIRECT: Port = Port(1);

impl Endpoint {
    /// Returns whether `port` bypasses all aggregators.
    #[inline]
    pub(super) fn is_direct(&self, port: Port) -> bool {
        self.config.links == Links::Overlay && port == DIRECT
    }

    /// Returns whether a frame of `src` may arrive on `port`. Frames about links are not accepted
    /// on a port that bypasses the aggregators.
    #[inline]
    pub(super) fn accepts_from(&self, port: Port, src: ProcessId, opcode: Opcode) -> bool {
        match self.config.links {
            Links::Uplink => port == Port(0),
            Links::Overlay => port == Port(0) || (port == DIRECT && opcode.service().is_some()),
            Links::Mesh => src.0 == u32::from(port.0),
        }
    }

    /// Returns the port for messages to `to`.
    #[inline]
    pub(super) fn port_to(&self, to: ProcessId) -> Port {
        match self.config.links {
            Links::Overlay => DIRECT,
            _ => self.control_port_to(to),
        }
    }

    /// Returns the port for frames of the control plane to `to`.
    #[inline]
    pub(super) fn control_port_to(&self, to: ProcessId) -> Port {
        match self.config.links {
            Links::Uplink | Links::Overlay => Port(0),
            Links::Mesh => Port(to.0 as u16),
        }
    }
}
