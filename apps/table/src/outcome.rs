//! What clients of a table are given and what they return.

use alloc::vec::Vec;

use core::fmt;

use onepipe_base::ProcessId;
use onepipe_memory::{ClientOptions, Refusal};

/// How a client runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableOptions {
    /// Options of its requests.
    pub memory: ClientOptions,
    /// Number of nodes that the client reserves at a time. Default 64. The free nodes of a client
    /// that ends are lost.
    pub reserved: u32,
}

impl Default for TableOptions {
    fn default() -> Self {
        Self { memory: ClientOptions::default(), reserved: 64 }
    }
}

/// An operation among those of its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(pub u64);

/// What an operation has done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// A look-up has found this value.
    Found(Vec<u8>),
    /// There is no such key.
    Missing,
    /// The key was inserted.
    Inserted,
    /// The key was there, and an insertion has not changed it.
    Exists,
    /// The value was replaced.
    Updated,
    /// The key was removed.
    Deleted,
}

/// Why an operation has failed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// All replicas of the shard have ended or do not reply. Nothing was changed.
    #[error("no replica of shard {0} replies")]
    Unavailable(u16),
    /// The same, after the request that changes the table was sent: it may have been executed.
    #[error("no replica of shard {0} replies, and the change may have been executed")]
    InDoubt(u16),
    /// The replicas of the shard have executed the same change with different results: their bytes
    /// differ, as one of them was filled in another way or has started again. No replica is known
    /// to be right.
    #[error(
        "the replicas of shard {shard} ({}) differ, and some of them may have executed the change: \
         end these processes, start all of them with empty shards, and fill the table again",
        Processes(replicas)
    )]
    ReplicasDiffer {
        /// The shard.
        shard: u16,
        /// The processes of its replicas.
        replicas: Vec<ProcessId>,
    },
    /// The operation has not ended within the limit on its time.
    #[error(
        "an operation on shard {shard} ({}) has not ended within {limit_ms} ms, and {}: see whether \
         these processes run and reply, or give the client a higher limit",
        Processes(replicas),
        if *may_be_executed { "its change may have been executed" } else { "has changed nothing" }
    )]
    TimedOut {
        /// The shard.
        shard: u16,
        /// The processes of its replicas that have not ended.
        replicas: Vec<ProcessId>,
        /// The limit in ms.
        limit_ms: u64,
        /// Whether the request that changes the table was sent.
        may_be_executed: bool,
    },
    /// The shard has no free node.
    #[error("shard {0} is full")]
    Full(u16),
    /// The value has another length than those of the table.
    #[error("a value has {len} bytes instead of {expected}")]
    ValueLen {
        /// Length of the value.
        len: usize,
        /// Length of the table's values.
        expected: u32,
    },
    /// Too many operations are in flight.
    #[error("too many operations are in flight")]
    Busy,
    /// The client's process has left the fabric.
    #[error("this process has left the fabric: a change may have been executed")]
    Left,
    /// A replica refuses a request: it has no such region, or the client has no right.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// Processes in an error.
struct Processes<'a>(&'a [ProcessId]);

impl fmt::Display for Processes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let noun = if self.0.len() == 1 { "process" } else { "processes" };
        f.write_str(noun)?;
        let mut separator = " ";
        for process in self.0 {
            write!(f, "{separator}{}", process.0)?;
            separator = ", ";
        }
        Ok(())
    }
}

/// An operation that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Finished {
    /// The operation.
    pub operation: OperationId,
    /// What happened.
    pub outcome: Result<Outcome, TableError>,
}

/// What a client has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TableStats {
    /// Walks that began again, as the bucket had changed.
    pub restarted: u64,
    /// Changes that were not executed, as the bucket had changed, and were tried again.
    pub conflicts: u64,
    /// Requests with different results at the replicas of a shard: their bytes differ.
    pub disagreements: u64,
    /// Look-ups and walks that were repeated at another replica.
    pub moved: u64,
}
