//! What a group tells its application, and why it refuses a command.

use alloc::vec::Vec;

use onepipe_wire::BulkRefused;

/// What a group tells its application. Objects are numbered from 0 in the order of sending.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Event<M = Vec<u8>> {
    /// An object is coming, and there is no memory for it yet: see [`crate::Group::provide`] and
    /// [`crate::Group::decline`].
    Announced {
        /// Which one.
        object: u32,
        /// How large it is.
        bytes: u64,
    },
    /// An object is whole: [`crate::Group::bytes`] shows it. They come in order.
    Delivered {
        /// Which one.
        object: u32,
    },
    /// Every surviving member holds the object, so the group needs its memory no more.
    Stable {
        /// Which one.
        object: u32,
        /// Its bytes.
        memory: M,
    },
    /// No survivor holds all of an object's blocks: it will never be whole.
    Lost {
        /// Which one.
        object: u32,
    },
    /// A member has failed.
    Failed(Failure),
    /// The group is over.
    Closed(Outcome),
}

/// How a group has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Everything has reached every member.
    Complete,
    /// Members have failed ([`crate::Group::failures`]). What has reached the survivors is told
    /// object by object.
    Failed,
    /// We were refused.
    Refused(BulkRefused),
    /// We have left before the end.
    Left,
}

/// A member that has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Failure {
    /// Its rank.
    pub rank: u32,
    /// The rank of who has noticed.
    pub by: u32,
    /// Why.
    pub reason: Reason,
}

/// Why a member counts as failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// The link to it is broken.
    Link = 1,
    /// It has answered nothing for too long.
    Timeout = 2,
    /// It has no memory for an object.
    Memory = 3,
    /// It has left.
    Left = 4,
    /// What it holds is not what the root has sent.
    Digest = 5,
    /// It has begun a new life.
    Restarted = 6,
    /// A reason that this version does not know.
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

/// Memory that was not taken, and why.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{error}")]
pub struct Unsent<M = Vec<u8>> {
    /// Why.
    pub error: SendError,
    /// What was given.
    pub memory: M,
}

/// Why a command was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// Only the root sends and closes.
    #[error("only the root sends")]
    NotRoot,
    /// The group is closing, or over.
    #[error("the group is closed")]
    Closed,
    /// A member has failed: what was sent before goes to the survivors, and nothing more is taken.
    #[error("a member has failed")]
    Failed,
    /// As many objects are under way as may be; wait for [`Event::Stable`].
    #[error("as many objects are under way as may be")]
    Full,
    /// The object has more blocks than there are numbers for.
    #[error("the object has too many blocks")]
    TooLarge,
    /// No such object waits for memory.
    #[error("no such object waits for memory")]
    NotAnnounced,
    /// Less memory than the object has bytes.
    #[error("less memory than the object has bytes")]
    TooSmall,
}
