//! Errors and results of groups.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use onepipe_bulk::{BLOCKS_MAX, ConfigError, Reason};
use onepipe_transport_bulk::{AttachError, JoinError, ObjectBytes, RendezvousError};

/// Why a group could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// The members could not connect to each other.
    #[error(transparent)]
    Rendezvous(#[from] RendezvousError),
    /// The members cannot share memory; typically they are not on one host.
    #[error("cannot share memory")]
    Attach(#[from] AttachError),
    /// A setting is out of its range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An address is listed twice.
    #[error("{0} is listed twice")]
    DuplicateMember(SocketAddr),
    /// The rank is out of range.
    #[error("rank {own} is out of range: the group has {members} members")]
    Rank {
        /// The requested rank.
        own: u32,
        /// Number of members.
        members: usize,
    },
    /// A system call failed.
    #[error("cannot {what}")]
    System {
        /// The operation that failed.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl From<JoinError> for GroupError {
    fn from(error: JoinError) -> Self {
        match error {
            JoinError::System { what, source } => Self::System { what, source },
            JoinError::Rendezvous(error) => Self::Rendezvous(error),
            JoinError::Attach(error) => Self::Attach(error),
        }
    }
}

/// A failed member, and the member that detected it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberFailure {
    /// Its rank.
    pub rank: u32,
    /// Its address.
    pub address: SocketAddr,
    /// Rank of the member that detected the failure.
    pub by: u32,
    /// Why it counts as failed.
    pub reason: Reason,
}

impl fmt::Display for MemberFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.reason {
            Reason::Link => "its connection broke",
            Reason::Timeout => "it did not respond",
            Reason::Memory => "it ran out of memory",
            Reason::Left => "it left",
            Reason::Digest => "its data had the wrong digest",
            Reason::Restarted => "it was restarted",
            _ => "unknown reason",
        };
        let Self { rank, address, by, .. } = self;
        write!(f, "member {rank} at {address} failed: {why} (detected by member {by})")
    }
}

/// The result of a group that did not deliver everything to all members.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupEnd {
    /// Members have failed. Every survivor has the first `objects` objects; the others are lost for
    /// all survivors.
    #[error("{}", list_failures(.failures))]
    Failed {
        /// The failed members, in the order in which this member was notified.
        failures: Vec<MemberFailure>,
        /// Number of objects that every survivor has.
        objects: u32,
    },
    /// The other members count this one as failed, and go on without it.
    #[error("the other members have excluded this one")]
    Excluded,
    /// This member has left before the end.
    #[error("this member has left the group before its end")]
    Left,
    /// A system call on the sockets failed, or another process has shortened the shared memory.
    #[error("the group's thread failed: {0}")]
    System(String),
}

fn list_failures(failures: &[MemberFailure]) -> String {
    failures.iter().map(MemberFailure::to_string).collect::<Vec<_>>().join("; ")
}

/// Why an object was not accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GroupSendError {
    /// Only the root may send.
    #[error("only the root of a group sends: this is member {own}")]
    NotRoot {
        /// This member's rank.
        own: u32,
    },
    /// A member has failed, or the group has ended: no object is accepted any more.
    #[error("no more objects are accepted: {0}")]
    Ended(#[from] GroupEnd),
    /// The maximum number of objects is in flight: try again later. Only of
    /// [`crate::EmbeddedGroup`]; [`crate::Group::send`] waits.
    #[error("the maximum number of objects is in flight: try again later")]
    Full {
        /// The object.
        object: ObjectBytes,
    },
    /// The object has more blocks than can be numbered: see [`crate::GroupOptions::block_len`].
    #[error("an object of {bytes} bytes has too many blocks: raise block_len")]
    TooLarge {
        /// Its length in bytes.
        bytes: usize,
    },
}

/// Whether member `own` may ever send an object of the given length.
pub(super) fn check_send(own: u32, bytes: usize, block_len: u32) -> Result<(), GroupSendError> {
    match bytes as u64 > u64::from(BLOCKS_MAX) * u64::from(block_len) {
        _ if own != 0 => Err(GroupSendError::NotRoot { own }),
        true => Err(GroupSendError::TooLarge { bytes }),
        false => Ok(()),
    }
}
