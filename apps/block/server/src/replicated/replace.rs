//! Replaces a replica while the device goes on.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::thread;
use std::time::{Duration, Instant};

use onepipe::ProcessId;
use onepipe_journal::{Directory, Disk, LOCK_NAME, OpenError};
use onepipe_log_server::{LogHandle, NodeError, StorageError, replace_replica};

use super::nodes::{Nodes, image_path, open_state};
use super::{LOG, ReplicatedBlocks};

/// Pause between two looks at a replica that catches up.
const PAUSE: Duration = Duration::from_millis(10);
/// Time that another replica has to apply what was acknowledged.
const OTHER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time without progress after which a replica that catches up is given up.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Why a replica was not replaced.
#[derive(Debug, thiserror::Error)]
pub enum ReplaceError {
    /// There is no such replica.
    #[error("replica {replica} does not exist: the device has replicas 0 to {last}")]
    Unknown {
        /// The number that was given.
        replica: u32,
        /// The last replica.
        last: u32,
    },
    /// Only this replica has all that was acknowledged.
    #[error("no other replica is up to date: replace one when the others have caught up")]
    Last,
    /// Its files cannot be removed.
    #[error("cannot remove {}", path.display())]
    System {
        /// The directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Its directory is in use, or cannot be created.
    #[error(transparent)]
    Directory(#[from] OpenError),
    /// Its log cannot be removed.
    #[error(transparent)]
    Log(#[from] StorageError),
    /// The replicas are in separate programs.
    #[error(
        "each replica is a program: stop this one, and run `onepipe block replace --process` for it"
    )]
    Program,
    /// Its node does not start.
    #[error("cannot start the replica")]
    Node(#[from] NodeError),
    /// The replica has ended, or does not get what it lacks.
    #[error("the replica does not catch up: it has {applied} of {wanted} entries of the log")]
    Stuck {
        /// The position that it has applied.
        applied: u64,
        /// The position that it has to reach.
        wanted: u64,
    },
}

impl ReplicatedBlocks {
    /// Replaces a replica: removes its files, as of a disk that has failed, and fills new ones from
    /// the other replicas. Returns when it has what was acknowledged before the call. Other
    /// requests go on, with a pause while the replica leaves.
    ///
    /// # Errors
    /// If no other replica has all that was acknowledged, or the files cannot be replaced.
    pub fn replace(&self, replica: u32) -> Result<(), ReplaceError> {
        let last = u32::from(self.replicas) - 1;
        if replica > last {
            return Err(ReplaceError::Unknown { replica, last });
        }
        let Nodes::All(cluster) = &self.nodes else { return Err(ReplaceError::Program) };
        let mut cluster = cluster.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = self.reads.seen();
        self.wait_for_other(replica, wanted)?;
        let others = self.nodes_without(replica);
        self.appends.pause_with(others);
        cluster.stop(replica);
        self.appends.resume();
        remove_files(&self.path, replica)?;
        let state = open_state(&self.path, self.image, (replica, &self.reads));
        let node = cluster.restart(replica, state.map_err(NodeError::State)?)?;
        self.appends.add_node(replica, node);
        drop(cluster);
        self.wait_for(replica, wanted)
    }

    /// Waits until another replica has applied a position.
    fn wait_for_other(&self, replica: u32, wanted: u64) -> Result<(), ReplaceError> {
        let deadline = Instant::now() + OTHER_TIMEOUT;
        let others = || (0..u32::from(self.replicas)).filter(|other| *other != replica);
        while !others().any(|other| self.reads.progress(other as usize).0 >= wanted) {
            if Instant::now() >= deadline {
                return Err(ReplaceError::Last);
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Waits until a replica has applied a position.
    fn wait_for(&self, replica: u32, wanted: u64) -> Result<(), ReplaceError> {
        let (mut before, mut deadline) = (0, Instant::now() + TIMEOUT);
        loop {
            let (applied, copied) = self.reads.progress(replica as usize);
            if applied >= wanted {
                return Ok(());
            }
            if applied + copied != before {
                (before, deadline) = (applied + copied, Instant::now() + TIMEOUT);
            }
            if Instant::now() >= deadline {
                return Err(ReplaceError::Stuck { applied, wanted });
            }
            thread::sleep(PAUSE);
        }
    }

    /// Returns the nodes of the other replicas.
    fn nodes_without(&self, replica: u32) -> Vec<(u32, LogHandle)> {
        let nodes = self.appends.nodes();
        nodes.into_iter().filter(|(number, _)| *number != replica).collect()
    }
}

/// Removes the files of a replica that does not run: it gets everything from the others.
fn remove_files(directory: &Path, replica: u32) -> Result<(), ReplaceError> {
    // The log first: without it the image is not used.
    replace_replica(&directory.join(LOG), ProcessId(replica))?;
    let path = image_path(directory, replica);
    let image = Directory::open(&path)?;
    let remove = || {
        for name in image.list()? {
            if name != LOCK_NAME && image.path(&name).is_file() {
                image.remove(&name)?;
            }
        }
        image.sync_directory()
    };
    remove().map_err(|source| ReplaceError::System { path, source })
}

/// Replaces a replica of a device that is not served: removes its files. When it starts, it gets
/// everything from the others.
///
/// That is safe unless the replica had gone on alone after all others had ended: what was
/// acknowledged since is lost then.
///
/// # Errors
/// The device is in use, or its files cannot be removed.
pub fn replace_offline(directory: &Path, replica: u32) -> Result<(), ReplaceError> {
    let _lock = Directory::open(directory)?;
    remove_files(directory, replica)
}
