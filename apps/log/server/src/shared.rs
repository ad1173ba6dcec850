//! State that the thread of a node shares with others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use onepipe::ProcessId;

/// What a node does, at most 100 ms ago.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeStats {
    /// The replica is a member of the view, and has the whole log.
    pub is_serving: bool,
    /// The state may be read: it has applied what it has to have applied.
    pub is_current: bool,
    /// Number of the view.
    pub view: u64,
    /// Number of members of the view.
    pub members: usize,
    /// Number of entries of the log that are known to be committed.
    pub committed_len: u64,
    /// Number of entries that were trimmed from the beginning.
    pub base_len: u64,
    /// Number of entries that the state has applied.
    pub applied: u64,
    /// Number of entries that the client has appended and that are committed.
    pub appended: u64,
    /// Checkpoints that were stored since the start.
    pub checkpoints: u64,
    /// States that were read from another replica since the start.
    pub installed: u64,
    /// The processes that the start waits for. Empty once the log is open.
    pub waiting: Vec<ProcessId>,
}

/// What the thread of a node publishes, and whether it is to end.
#[derive(Default)]
pub(crate) struct Shared {
    stats: Mutex<NodeStats>,
    ended: Mutex<Option<Arc<str>>>,
    is_stopping: AtomicBool,
    has_left: AtomicBool,
}

const NO_PANIC: &str = "no thread panics while it holds the lock";

impl Shared {
    pub fn stats(&self) -> NodeStats {
        self.stats.lock().expect(NO_PANIC).clone()
    }

    pub fn publish(&self, stats: NodeStats) {
        *self.stats.lock().expect(NO_PANIC) = stats;
    }

    /// Returns why the node has ended, if it has.
    pub fn ended(&self) -> Option<Arc<str>> {
        self.ended.lock().expect(NO_PANIC).clone()
    }

    pub fn end(&self, reason: Arc<str>) {
        *self.ended.lock().expect(NO_PANIC) = Some(reason);
    }

    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
    }

    /// Lets the node stop, so that the others go on without it.
    pub fn leave(&self) {
        self.has_left.store(true, Ordering::Release);
        self.stop();
    }

    /// Returns whether the others are to go on without the node: it was not stopped, and ends, or
    /// was stopped alone.
    pub fn is_leaving(&self) -> bool {
        self.has_left.load(Ordering::Acquire) || !self.is_stopping()
    }

    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }
}
