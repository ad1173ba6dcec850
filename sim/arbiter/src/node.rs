//! All kinds of nodes as one machine.

use onepipe_arbiter::{Arbiter, Client};
use onepipe_base::{Machine, Mono, Now, Port, Transmit, Verdict};
use onepipe_sim_traffic::Forwarder;

use crate::arbiter_host::ArbiterHost;
use crate::gate::Gated;
use crate::host_traffic::{HostEvent, HostTraffic};

/// A host or a switch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::large_enum_variant, reason = "one value a node, in place")]
pub(crate) enum Node {
    /// A host that sends at any time.
    Host(HostTraffic),
    /// A host that sends in granted timeslots.
    Gated(Box<Gated<HostTraffic>>),
    /// The host of an arbiter.
    Arbiter(Box<ArbiterHost>),
    Switch(Forwarder),
}

impl Node {
    /// Returns the traffic of the host, if the node is one.
    pub fn traffic(&self) -> Option<&HostTraffic> {
        match self {
            Self::Host(traffic) => Some(traffic),
            Self::Gated(gated) => Some(&gated.source),
            Self::Arbiter(_) | Self::Switch(_) => None,
        }
    }

    pub fn traffic_mut(&mut self) -> Option<&mut HostTraffic> {
        match self {
            Self::Host(traffic) => Some(traffic),
            Self::Gated(gated) => Some(&mut gated.source),
            Self::Arbiter(_) | Self::Switch(_) => None,
        }
    }

    pub fn client(&self) -> Option<&Client> {
        match self {
            Self::Gated(gated) => Some(&gated.client),
            _ => None,
        }
    }

    pub fn arbiter(&self) -> Option<&Arbiter> {
        match self {
            Self::Arbiter(arbiter_host) => Some(&arbiter_host.arbiter),
            _ => None,
        }
    }
}

impl Machine for Node {
    type Event = HostEvent;

    #[inline]
    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        match self {
            Self::Host(host) => host.handle_frame(now, port, frame),
            Self::Gated(gated) => gated.handle_frame(now, port, frame),
            Self::Arbiter(arbiter_host) => arbiter_host.handle_frame(now, port, frame),
            Self::Switch(switch) => switch.handle_frame(now, port, frame),
        }
    }

    fn handle_timeout(&mut self, now: Now) {
        match self {
            Self::Host(host) => host.handle_timeout(now),
            Self::Gated(gated) => gated.handle_timeout(now),
            Self::Arbiter(arbiter_host) => arbiter_host.handle_timeout(now),
            Self::Switch(switch) => switch.handle_timeout(now),
        }
    }

    #[inline]
    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        match self {
            Self::Host(host) => host.poll_transmit(now, slot),
            Self::Gated(gated) => gated.poll_transmit(now, slot),
            Self::Arbiter(arbiter_host) => arbiter_host.poll_transmit(now, slot),
            Self::Switch(switch) => switch.poll_transmit(now, slot),
        }
    }

    #[inline]
    fn poll_event(&mut self) -> Option<HostEvent> {
        match self {
            Self::Host(host) => host.poll_event(),
            Self::Gated(gated) => gated.poll_event(),
            Self::Arbiter(arbiter_host) => {
                arbiter_host.poll_event();
                None
            }
            Self::Switch(_) => None,
        }
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Mono> {
        match self {
            Self::Host(host) => host.poll_timeout(),
            Self::Gated(gated) => gated.poll_timeout(),
            Self::Arbiter(arbiter_host) => arbiter_host.poll_timeout(),
            Self::Switch(switch) => switch.poll_timeout(),
        }
    }
}
