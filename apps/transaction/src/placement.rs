//! Which processes hold which shard.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use onepipe_base::{ProcessId, Timestamp};
use thiserror::Error;

use crate::members::Members;

/// Limit on the replicas of a shard.
pub const REPLICAS_MAX: usize = 5;

/// The replicas of each shard, and which of them are up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Placement {
    shards: Vec<Vec<ProcessId>>,
    members: Members,
}

/// Why a placement is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PlacementError {
    /// The number of shards is out of range.
    #[error("a store has 1 to {max} shards, not {0}", max = u16::MAX)]
    Shards(usize),
    /// The number of replicas is out of range.
    #[error("shard {shard} has {count} replicas: 1 to {REPLICAS_MAX} are possible")]
    Replicas {
        /// The shard.
        shard: usize,
        /// Its number of replicas.
        count: usize,
    },
    /// A process holds two replicas.
    #[error("process {} holds two replicas: give each replica a process of its own", .0.0)]
    Repeated(ProcessId),
}

impl Placement {
    /// Creates a placement from the replicas of each shard, all of them up.
    ///
    /// # Errors
    /// There are no shards, or a shard has no replica or too many, or a process holds two.
    pub fn new(shards: Vec<Vec<ProcessId>>) -> Result<Self, PlacementError> {
        if shards.is_empty() || shards.len() > usize::from(u16::MAX) {
            return Err(PlacementError::Shards(shards.len()));
        }
        let mut seen = BTreeSet::new();
        for (shard, replicas) in shards.iter().enumerate() {
            let count = replicas.len();
            if !(1..=REPLICAS_MAX).contains(&count) {
                return Err(PlacementError::Replicas { shard, count });
            }
            for process in replicas {
                if !seen.insert(*process) {
                    return Err(PlacementError::Repeated(*process));
                }
            }
        }
        Ok(Self { shards, members: Members::default() })
    }

    /// Places `shards` shards with `replicas` replicas each on consecutive processes from `first`
    /// on: the replicas of shard 0, then those of shard 1, and so on.
    ///
    /// # Errors
    /// As [`Placement::new`].
    pub fn consecutive(first: u32, shards: u16, replicas: u16) -> Result<Self, PlacementError> {
        let process = |shard, replica| {
            ProcessId(first + u32::from(shard) * u32::from(replicas) + u32::from(replica))
        };
        let of = |shard| (0..replicas).map(|replica| process(shard, replica)).collect();
        Self::new((0..shards).map(of).collect())
    }

    /// Returns the number of shards.
    pub fn shards(&self) -> u16 {
        self.shards.len() as u16
    }

    /// Returns all replicas of a shard, also those that are down. Empty if there is no such shard.
    pub fn replicas(&self, shard: u16) -> &[ProcessId] {
        self.shards.get(usize::from(shard)).map_or(&[], Vec::as_slice)
    }

    /// Returns the replicas of a shard that are up.
    pub fn up(&self, shard: u16) -> impl Iterator<Item = ProcessId> {
        self.replicas(shard).iter().copied().filter(|process| self.members.is_up(*process))
    }

    /// Returns the shard that a process holds a replica of.
    pub fn shard_of(&self, process: ProcessId) -> Option<u16> {
        let position = self.shards.iter().position(|replicas| replicas.contains(&process));
        position.map(|position| position as u16)
    }

    /// Notes that a process has failed or left, or has no state, as of a timestamp. Returns whether
    /// it holds a replica that was up.
    pub fn on_ended(&mut self, process: ProcessId, at: Timestamp) -> bool {
        self.shard_of(process).is_some() && self.members.on_ended(process, at)
    }

    /// Returns the changes of the membership that are known.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// Adds the changes of the membership that a replica knows.
    pub fn merge(&mut self, members: &Members) {
        self.members.merge(members);
    }

    /// Returns all replicas that are up, in ascending order of their shards.
    pub fn all_up(&self) -> impl Iterator<Item = ProcessId> {
        self.shards.iter().flatten().copied().filter(|process| self.members.is_up(*process))
    }
}
