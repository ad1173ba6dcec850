//! The replicated log as processes: nodes on a fabric, each with a client, and with a replica and
//! its journal if the node is one of a replica.
//!
//! ```
//! use std::sync::mpsc::channel;
//!
//! use onepipe_log::NoState;
//! use onepipe_log_server::{Cluster, ClusterOptions};
//!
//! let mut options = ClusterOptions::new(format!("doc-log-{}", std::process::id()), 3);
//! let directory = tempfile::tempdir()?;
//! options.directory = Some(directory.path().into());
//! let cluster = Cluster::start(&options, |_| NoState)?;
//! let (done, committed) = channel();
//! // The entry is committed when it is on the disks of all members, in one round trip.
//! cluster.handle().append(b"hello".to_vec(), Box::new(move |result| {
//!     let _ = done.send(result);
//! }));
//! assert_eq!(committed.recv()??.position.index, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod cluster;
mod driven;
mod handle;
mod node;
mod node_thread;
mod options;
mod outbox;
mod read_index;
mod reads;
mod shared;
mod storage;

pub use cluster::{Cluster, ClusterOptions};
pub use handle::{
    AppendFailure, CommittedEntries, LogHandle, OnCommitted, OnEntries, OnReadIndex, ReadFailure,
};
pub use node::{Node, NodeError, Own};
pub use node_thread::{Drive, Job, NodeThread};
pub use options::NodeOptions;
pub use shared::NodeStats;
pub use storage::{StorageError, replace_replica};
