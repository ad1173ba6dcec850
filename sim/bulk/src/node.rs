//! Node of the network: a host or a switch, as one machine.

use onepipe_base::{Machine, Mono, Now, Port, Transmit, Verdict};
use onepipe_bulk::{Event, Group};
use onepipe_sim_traffic::Forwarder;

/// A host with or without a member, or a switch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::large_enum_variant, reason = "one value a node, in place")]
pub(crate) enum Node {
    Member(Group),
    Idle,
    Switch(Forwarder),
}

impl Node {
    pub fn group(&self) -> Option<&Group> {
        match self {
            Self::Member(group) => Some(group),
            Self::Idle | Self::Switch(_) => None,
        }
    }
}

impl Machine for Node {
    type Event = Event;

    #[inline]
    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        match self {
            Self::Member(group) => group.handle_frame(now, port, frame),
            Self::Idle => Verdict::Dropped,
            Self::Switch(switch) => switch.handle_frame(now, port, frame),
        }
    }

    fn handle_timeout(&mut self, now: Now) {
        if let Self::Member(group) = self {
            group.handle_timeout(now);
        }
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        match self {
            Self::Member(group) => group.poll_transmit(now, slot),
            Self::Idle | Self::Switch(_) => None,
        }
    }

    fn poll_event(&mut self) -> Option<Event> {
        match self {
            Self::Member(group) => group.poll_event(),
            Self::Idle | Self::Switch(_) => None,
        }
    }

    fn poll_timeout(&self) -> Option<Mono> {
        match self {
            Self::Member(group) => group.poll_timeout(),
            Self::Idle | Self::Switch(_) => None,
        }
    }
}
