//! Destinations and deliveries of messages.

use bytes::Bytes;
use onepipe_base::ProcessId;
use onepipe_wire::GroupSet;

/// Destination of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum To {
    /// One member.
    One(ProcessId),
    /// All members, or all groups.
    All,
    /// All members of some groups ([`Method::Primcast`](crate::Method::Primcast)).
    Groups(GroupSet),
}

impl To {
    pub(crate) fn is_within(self, members: u32) -> bool {
        match self {
            Self::One(to) => to.0 < members,
            Self::All => true,
            Self::Groups(_) => false,
        }
    }
}

/// Delivery of a message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Delivery {
    /// The process that sent it.
    pub from: ProcessId,
    /// Sequence number or logical time; 0 if unordered.
    pub number: u64,
    /// Content of the message.
    pub payload: Bytes,
}
