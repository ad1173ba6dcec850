//! Settings of a journal.

use std::fmt;

/// Identifies the store whose records a directory holds: a cluster, shard and replica set. A file
/// with another identity is refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreId(pub [u8; 16]);

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreId({self})")
    }
}

/// When records reach the disk, and so when a reply may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SyncPolicy {
    /// One `fdatasync` for all records that were appended since the last one. A reply waits until
    /// its record is durable.
    #[default]
    Always,
    /// An `fdatasync` each second. A reply waits until its record is written; a crash of the
    /// machine may lose the last second, a crash of the process nothing.
    EverySecond,
    /// The system chooses the time. A segment that is full is still synchronised before the next
    /// one begins, so that a crash loses the end of the log and not its middle.
    Never,
}

/// Settings of a journal. [`Options::new`] has the usual values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The store whose records these are.
    pub store: StoreId,
    /// When records reach the disk.
    pub policy: SyncPolicy,
    /// Size of a segment, in bytes, at which a new one begins. A record that is longer has a
    /// segment of its own.
    pub segment_bytes: u64,
    /// Number of snapshots that are retained, with the log back to the oldest one; at least 1. With
    /// 2, a damaged snapshot costs the replay of a longer log, and disk space for both.
    pub snapshot_count: usize,
    /// Payload bytes in memory that have not reached the disk, above which a journal refuses to
    /// append.
    pub buffered_bytes_max: usize,
}

impl Options {
    /// Returns the usual settings for `store`: [`SyncPolicy::Always`], segments of 64 MiB, one
    /// snapshot, a buffer of 256 MiB.
    pub const fn new(store: StoreId) -> Self {
        Self {
            store,
            policy: SyncPolicy::Always,
            segment_bytes: 64 << 20,
            snapshot_count: 1,
            buffered_bytes_max: 256 << 20,
        }
    }
}
