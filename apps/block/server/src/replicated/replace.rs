//! Replaces a replica while the device goes on.

use std::io;
use std::path::{Path, PathBuf};

use onepipe::ProcessId;
use onepipe_journal::{Directory, Disk, LOCK_NAME, OpenError};
use onepipe_log_server::{NodeError, StorageError, replace_replica};

use super::nodes::image_path;
use super::{LOG, ReplicatedBlocks};

/// Why a replica was not stopped, started or replaced.
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
    /// The replica has ended again.
    #[error("the replica has ended: {0}")]
    Ended(String),
    /// The replica does not get what it lacks.
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
        let cluster = self.stop_node(replica)?;
        remove_files(&self.path, replica)?;
        self.start_node(cluster, replica)
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
