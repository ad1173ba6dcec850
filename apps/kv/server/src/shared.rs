//! State that the thread of a node shares with others.

use std::sync::atomic::AtomicBool;
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
}
