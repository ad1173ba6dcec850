//! State that the thread of a node shares with others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use onepipe::ProcessId;

use crate::backend::OnResults;

/// Counters of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeStats {
    /// The shard whose replica the node holds.
    pub shard: Option<u16>,
    /// Writes that the replica has executed.
    pub writes: u64,
    /// Reads that the replica has answered.
    pub reads: u64,
    /// Transactions that the client has finished.
    pub transactions: u64,
    /// Scatterings that the client has sent again.
    pub retried: u64,
    /// Replies that differ between replicas. This must be 0.
    pub disagreements: u64,
    /// The log of the replica, if it has one.
    pub log: LogStats,
}

/// Lengths of the log of a replica, and of its snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Bytes of the records behind the last snapshot: what a start executes again.
    pub log_bytes: u64,
    /// Bytes of the last snapshot.
    pub snapshot_bytes: u64,
    /// Snapshots that were stored since the start.
    pub snapshots: u64,
    /// Snapshots that could not be stored since the start. Others follow.
    pub failed_snapshots: u64,
}

/// A transaction handed over to the thread of a node.
pub(crate) struct Submission {
    pub is_read_only: bool,
    pub parts: Vec<(u16, Vec<u8>)>,
    pub on_results: OnResults,
}

/// What the thread of a node publishes, and whether it is to end.
#[derive(Default)]
pub(crate) struct Shared {
    stats: Mutex<NodeStats>,
    ended: Mutex<Option<Arc<str>>>,
    /// The processes that the start of the store waits for. Empty once the store is open.
    waiting: Mutex<Vec<ProcessId>>,
    disk_failure: Mutex<Option<Arc<str>>>,
    /// Whether there is a failure of the disk, which is looked at for each write.
    has_disk_failure: AtomicBool,
    pub is_stopping: AtomicBool,
    /// Whether the node has a replica, and that has caught up.
    pub is_serving: AtomicBool,
}

impl Shared {
    pub fn stats(&self) -> NodeStats {
        *self.stats.lock().expect("no thread panics while it holds the lock")
    }

    pub fn publish(&self, stats: NodeStats) {
        *self.stats.lock().expect("no thread panics while it holds the lock") = stats;
    }

    /// Returns the processes that the start of the store waits for.
    pub fn waiting(&self) -> Vec<ProcessId> {
        self.waiting.lock().expect("no thread panics while it holds the lock").clone()
    }

    pub fn set_waiting(&self, processes: Vec<ProcessId>) {
        *self.waiting.lock().expect("no thread panics while it holds the lock") = processes;
    }

    /// Returns why the node has ended, if it has.
    pub fn ended(&self) -> Option<Arc<str>> {
        self.ended.lock().expect("no thread panics while it holds the lock").clone()
    }

    pub fn end(&self, reason: Arc<str>) {
        *self.ended.lock().expect("no thread panics while it holds the lock") = Some(reason);
    }

    /// Returns why the node's disk does not take what is written, if it does not.
    pub fn disk_failure(&self) -> Option<Arc<str>> {
        if !self.has_disk_failure.load(Ordering::Relaxed) {
            return None;
        }
        self.disk_failure.lock().expect("no thread panics while it holds the lock").clone()
    }

    pub fn set_disk_failure(&self, failure: Option<Arc<str>>) {
        let has_failure = failure.is_some();
        *self.disk_failure.lock().expect("no thread panics while it holds the lock") = failure;
        self.has_disk_failure.store(has_failure, Ordering::Relaxed);
    }
}
