//! Replaces a replica while the device goes on.

use std::io;
use std::path::{Path, PathBuf};

use onepipe_log_server::NodeError;

use super::{LOG, ReplicatedBlocks, image_path};

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
        let cluster = self.stop_node(replica)?;
        for path in [
            image_path(&self.path, replica),
            self.path.join(LOG).join(format!("replica-{replica}")),
        ] {
            empty(&path).map_err(|source| ReplaceError::System { path, source })?;
        }
        self.start_node(cluster, replica)
    }
}

/// Removes what is in a directory, if that exists. The directory stays, as it may be a link to
/// another disk.
fn empty(path: &Path) -> io::Result<()> {
    let entries = match std::fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            std::fs::remove_dir_all(entry.path())?;
        } else {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
