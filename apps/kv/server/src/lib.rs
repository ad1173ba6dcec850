//! The key-value store as processes.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod backend;
mod cluster;
mod disk_watch;
mod driven;
pub mod front;
mod node;
mod options;
mod shared;
mod starting;
mod storage;
mod wake_batch;

pub use onepipe_journal::SyncPolicy;

pub use backend::{Backend, BackendError, OnReplies, OnResults, Replies, Results};
pub use cluster::{Cluster, ClusterError, ClusterOptions};
pub use node::{Node, NodeError, NodeHandle};
pub use options::NodeOptions;
pub use shared::{LogStats, NodeStats};
pub use storage::{RepairError, RepairedLog, StorageError, StorageOptions, repair};
