//! The parameters and errors of the rendezvous of a group.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::GroupState;
use crate::handshake::{Handshake, HandshakeKind};

/// The parameters of a rendezvous.
#[derive(Clone, Copy, Debug)]
pub struct Rendezvous<'a> {
    /// The group's number, the same at all members.
    pub group: u64,
    /// Each member's listener address, by rank; the root's is never connected to.
    pub members: &'a [SocketAddr],
    /// This member's rank.
    pub own: u32,
    /// How long to wait for the others.
    pub timeout: Duration,
}

/// Why a rendezvous failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RendezvousError {
    /// A member cannot be reached, or did not connect.
    #[error("member {rank} at {address} cannot be reached")]
    Member {
        /// Its rank.
        rank: u32,
        /// Its address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// A member reports that it cannot reach another one.
    #[error("member {by} cannot reach member {rank} at {address}")]
    Between {
        /// Rank of the member that reports.
        by: u32,
        /// Rank of the member that it cannot reach.
        rank: u32,
        /// Address of the member that it cannot reach.
        address: SocketAddr,
    },
    /// The group has started or ended without this member, was abandoned, or is unknown.
    #[error("group {group} {group_state}, as reported by member {by} at {address}")]
    GroupClosed {
        /// Number of the group.
        group: u64,
        /// State of the group.
        group_state: GroupState,
        /// Rank of the member that reports.
        by: u32,
        /// Address of the member that reports.
        address: SocketAddr,
    },
    /// This member's own listener fails.
    #[error("cannot listen at {address}")]
    Listener {
        /// Its address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
}

impl Rendezvous<'_> {
    pub(crate) fn handshake(&self, kind: HandshakeKind, to: u32) -> Handshake {
        Handshake { kind, group: self.group, from: self.own, to }
    }

    pub(crate) fn closed_error(&self, by: u32, group_state: GroupState) -> RendezvousError {
        let address = self.members[by as usize];
        RendezvousError::GroupClosed { group: self.group, group_state, by, address }
    }

    /// The error of a member that cannot be reached.
    pub(crate) fn member_error(&self, rank: u32, source: io::Error) -> RendezvousError {
        RendezvousError::Member { rank, address: self.members[rank as usize], source }
    }
}

impl RendezvousError {
    /// The rank of the unreachable member.
    pub fn rank(&self) -> Option<u32> {
        match self {
            Self::Member { rank, .. } | Self::Between { rank, .. } => Some(*rank),
            Self::Listener { .. } | Self::GroupClosed { .. } => None,
        }
    }
}
