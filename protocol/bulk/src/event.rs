//! Events of a group, and errors of its commands.

use alloc::vec::Vec;

use onepipe_wire::BulkRefused;

/// Event of a group. Objects are numbered from 0 in the order of sending.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Event<M = Vec<u8>> {
    /// An object was announced and needs memory: call [`crate::Group::provide`] or
    /// [`crate::Group::decline`].
    Announced {
        /// Object number.
        object: u32,
        /// Length in bytes.
        bytes: u64,
    },
    /// An object is complete: see [`crate::Group::bytes`]. Objects are delivered in order.
    Delivered {
        /// Object number.
        object: u32,
    },
    /// All survivors have the object, so the group releases its memory.
    Stable {
        /// Object number.
        object: u32,
        /// Memory with the object's content.
        memory: M,
    },
    /// Some blocks of an object were lost with failed members: it will never be complete.
    Lost {
        /// Object number.
        object: u32,
    },
    /// A member has failed.
    Failed(Failure),
    /// The group has ended.
    Closed(Outcome),
}

/// Outcome of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// All objects have reached all members.
    Complete,
    /// Members have failed ([`crate::Group::failures`]). Earlier events report the outcome of each
    /// object.
    Failed,
    /// Another member has refused this one.
    Refused(BulkRefused),
    /// This member has left before the end.
    Left,
}

/// Failure of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Failure {
    /// Rank of the failed member.
    pub rank: u32,
    /// Rank of the member that has detected the failure.
    pub by: u32,
    /// Cause of the failure.
    pub reason: Reason,
}

/// Cause of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// The link to the member is down.
    Link = 1,
    /// The member has left frames unanswered for too long.
    Timeout = 2,
    /// The member has no memory for an object.
    Memory = 3,
    /// The member has left.
    Left = 4,
    /// The member's objects differ from what the root has sent.
    Digest = 5,
    /// The member has restarted: it has a new incarnation.
    Restarted = 6,
    /// A cause that this version does not know.
    Other = 255,
}

impl Reason {
    pub(crate) const fn from_bits(bits: u8) -> Self {
        match bits {
            1 => Self::Link,
            2 => Self::Timeout,
            3 => Self::Memory,
            4 => Self::Left,
            5 => Self::Digest,
            6 => Self::Restarted,
            _ => Self::Other,
        }
    }
}

/// Rejected command with the memory that was passed to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{error}")]
pub struct Unsent<M = Vec<u8>> {
    /// Reason of the rejection.
    pub error: SendError,
    /// The memory, returned to the caller.
    pub memory: M,
}

/// Reason why a command was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// Only the root may send and close.
    #[error("only the root of a group can send or close")]
    NotRoot,
    /// The group is closing or has ended.
    #[error("cannot send: the group is closed")]
    Closed,
    /// A member has failed. Objects sent before go to the survivors; new ones are rejected.
    #[error("cannot send: a member has failed")]
    Failed,
    /// Too many objects are active; wait for [`Event::Stable`].
    #[error("cannot send: the maximum number of objects is in flight (objects_max)")]
    Full,
    /// The object has too many blocks.
    #[error("cannot send: the object has too many blocks; use a larger block_len")]
    TooLarge,
    /// The object does not wait for memory.
    #[error("no such object waits for memory")]
    NotAnnounced,
    /// The memory is shorter than the object.
    #[error("the memory is shorter than the object")]
    TooSmall,
}
