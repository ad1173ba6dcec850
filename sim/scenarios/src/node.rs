//! The two kinds of nodes of a fabric, as one machine.

use onepipe_base::{Machine, Mono, Now, Port, Transmit, Verdict};
use onepipe_endpoint::Event;
use onepipe_node::{Host, HostEvent};
use onepipe_switch::SwitchEvent;

use crate::{Element, Process};

/// A host or a switch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::large_enum_variant, reason = "one value a node, in place")]
pub enum Node {
    /// Processes behind a virtual switch.
    Host(Host<Element, Process>),
    /// A switch.
    Switch(Element),
}

impl Node {
    /// The process at a port of a host, if it runs.
    pub fn process(&self, port: Port) -> Option<&Process> {
        match self {
            Self::Host(host) => host.process(port),
            Self::Switch(_) => None,
        }
    }

    /// The process at a port of a host, to command it.
    pub fn process_mut(&mut self, port: Port) -> Option<&mut Process> {
        match self {
            Self::Host(host) => host.process_mut(port),
            Self::Switch(_) => None,
        }
    }
}

impl Machine for Node {
    type Event = HostEvent<Event, SwitchEvent>;

    #[inline]
    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        match self {
            Self::Host(host) => host.handle_frame(now, port, frame),
            Self::Switch(switch) => switch.handle_frame(now, port, frame),
        }
    }

    fn handle_timeout(&mut self, now: Now) {
        match self {
            Self::Host(host) => host.handle_timeout(now),
            Self::Switch(switch) => switch.handle_timeout(now),
        }
    }

    #[inline]
    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        match self {
            Self::Host(host) => host.poll_transmit(now, slot),
            Self::Switch(switch) => switch.poll_transmit(now, slot),
        }
    }

    #[inline]
    fn poll_event(&mut self) -> Option<Self::Event> {
        match self {
            Self::Host(host) => host.poll_event(),
            Self::Switch(switch) => switch.poll_event().map(HostEvent::Switch),
        }
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Mono> {
        match self {
            Self::Host(host) => host.poll_timeout(),
            Self::Switch(switch) => switch.poll_timeout(),
        }
    }
}
