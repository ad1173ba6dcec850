//! What becomes of a group, and why a call is refused.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use onepipe_bulk::{BLOCKS_MAX, ConfigError, Reason};
use onepipe_transport_bulk::{AttachError, JoinError, ObjectBytes, RendezvousError};

/// Why there is no group.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// The members have not met.
    #[error(transparent)]
    Rendezvous(#[from] RendezvousError),
    /// The members share no memory: they are not on one host, perhaps.
    #[error("cannot share memory")]
    Attach(#[from] AttachError),
    /// A setting makes no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An address is a member twice.
    #[error("{0} is a member twice")]
    DuplicateMember(SocketAddr),
    /// The rank given is none of the group's.
    #[error("there is no member {own} in a group of {members}")]
    Rank {
        /// The rank given.
        own: u32,
        /// How many members there are.
        members: usize,
    },
    /// The system refuses a socket or a thread.
    #[error("cannot {what}")]
    System {
        /// What it refuses.
        what: &'static str,
        /// What it said.
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

/// A member that has failed, and who says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberFailure {
    /// Its rank.
    pub rank: u32,
    /// Where it was.
    pub address: SocketAddr,
    /// The rank of who has noticed.
    pub by: u32,
    /// Why it counts as failed.
    pub reason: Reason,
}

impl fmt::Display for MemberFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.reason {
            Reason::Link => "its connection broke",
            Reason::Timeout => "it did not answer",
            Reason::Memory => "it had no memory",
            Reason::Left => "it left",
            Reason::Digest => "what it held was not what was sent",
            Reason::Restarted => "it had begun a new life",
            _ => "unknown reason",
        };
        let Self { rank, address, by, .. } = self;
        write!(f, "member {rank} at {address} failed: {why} (member {by} noticed)")
    }
}

/// How a group has ended, if not with everything at every member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupEnd {
    /// Members have failed. Every survivor has the first objects, as many as it says; the others
    /// are lost to all survivors.
    #[error("{}", list_failures(.failures))]
    Failed {
        /// Who, in the order in which we were told.
        failures: Vec<MemberFailure>,
        /// How many objects every survivor has.
        objects: u32,
    },
    /// The others count us as failed, and go on without us.
    #[error("the other members have excluded this one")]
    Excluded,
    /// We have left before the end.
    #[error("this member has left the group before its end")]
    Left,
    /// The system has refused to wait for the sockets.
    #[error("the group's thread failed: {0}")]
    System(String),
}

fn list_failures(failures: &[MemberFailure]) -> String {
    failures.iter().map(MemberFailure::to_string).collect::<Vec<_>>().join("; ")
}

/// Why an object was not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GroupSendError {
    /// Only the root sends.
    #[error("only the root of a group sends: this is member {own}")]
    NotRoot {
        /// Our rank.
        own: u32,
    },
    /// A member has failed, or the group has ended: nothing more is taken.
    #[error("nothing more is sent: {0}")]
    Ended(#[from] GroupEnd),
    /// As many objects are under way as may be: try again later. Only of [`crate::EmbeddedGroup`]:
    /// others wait.
    #[error("as many objects are under way as may be")]
    Full {
        /// What was given.
        object: ObjectBytes,
    },
    /// There are more blocks than numbers for them: [`crate::GroupOptions::block_len`].
    #[error("an object of {bytes} bytes has too many blocks")]
    TooLarge {
        /// Its bytes.
        bytes: usize,
    },
}

/// Whether member `own` may ever send an object of so many bytes.
pub(super) fn check_send(own: u32, bytes: usize, block_len: u32) -> Result<(), GroupSendError> {
    match bytes as u64 > u64::from(BLOCKS_MAX) * u64::from(block_len) {
        _ if own != 0 => Err(GroupSendError::NotRoot { own }),
        true => Err(GroupSendError::TooLarge { bytes }),
        false => Ok(()),
    }
}
