//! The replicas of a device that run in this program, with their files.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use onepipe::{Builder, ProcessId};
use onepipe_block_replica::ImageOptions;
use onepipe_log_server::{Cluster, ClusterOptions, LogHandle, Node, NodeError, Own};

use super::reads::Reads;
use super::state::ReplicaState;
use super::{LOG, ReplicatedOptions};

/// The replicas that run in this program.
pub enum Nodes {
    /// All replicas of the device.
    All(Mutex<Cluster>),
    /// One of them. The node is in use until this value is dropped.
    One { replica: u32, handle: LogHandle, _node: Mutex<Node> },
}

impl Nodes {
    /// Starts all replicas.
    pub fn start(
        options: &ReplicatedOptions,
        image: ImageOptions,
        reads: &Arc<Reads>,
    ) -> Result<Nodes, NodeError> {
        let log = log_options(options);
        let cluster = Cluster::try_start(&log, |replica| {
            open_state(&options.directory, image, (replica, reads))
        })?;
        Ok(Nodes::All(Mutex::new(cluster)))
    }

    /// Starts the replica of a process.
    pub fn start_one(
        options: &ReplicatedOptions,
        image: ImageOptions,
        reads: &Arc<Reads>,
        (process, builder): (u32, Builder),
    ) -> Result<Nodes, NodeError> {
        let log = log_options(options);
        if process >= log.replicas {
            return Err(NodeError::NoReplica(ProcessId(process)));
        }
        let state = open_state(&options.directory, image, (process, reads));
        let own = Own { directory: log.directory.clone(), state: state.map_err(NodeError::State)? };
        let node = Node::start(ProcessId(process), builder, &log.node(), own)?;
        reads.repairer().join(process as usize, node.handle());
        Ok(Nodes::One { replica: process, handle: node.handle(), _node: Mutex::new(node) })
    }

    /// Returns the handles of the nodes, with the numbers of their replicas.
    pub fn handles(&self) -> Vec<(u32, LogHandle)> {
        match self {
            Nodes::All(cluster) => {
                let cluster = cluster.lock().unwrap_or_else(PoisonError::into_inner);
                (0..).zip(cluster.replicas()).collect()
            }
            Nodes::One { replica, handle, .. } => vec![(*replica, handle.clone())],
        }
    }

    /// Returns the node of the only replica of this program, if the others are in other programs.
    pub fn one(&self) -> Option<&LogHandle> {
        match self {
            Nodes::All(_) => None,
            Nodes::One { handle, .. } => Some(handle),
        }
    }
}

fn log_options(options: &ReplicatedOptions) -> ClusterOptions {
    let mut log = ClusterOptions::new(options.fabric.clone(), u32::from(options.replicas));
    log.directory = Some(options.directory.join(LOG));
    log
}

/// Returns the directory of a replica's image.
pub fn image_path(directory: &Path, replica: u32) -> PathBuf {
    directory.join(format!("image-{replica}"))
}

/// Opens the image of a replica.
pub fn open_state(
    directory: &Path,
    image: ImageOptions,
    (replica, reads): (u32, &Arc<Reads>),
) -> io::Result<ReplicaState> {
    let reads = (replica as usize, Arc::clone(reads));
    let state = ReplicaState::open(&image_path(directory, replica), image, reads);
    state.map_err(io::Error::other)
}
