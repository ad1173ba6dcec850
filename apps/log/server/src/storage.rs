//! The journal of a replica.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use onepipe::{Doorbell, ProcessId};
use onepipe_journal::{
    Directory, Disk, Failure, FinishedSnapshot, Journal, JournalError, LOCK_NAME, OpenError,
    Options, StoreId, Writer,
};
use onepipe_log::{LogReplica, OwnLog, Record, RestoreError};
use thiserror::Error;

/// Bytes of records after which a checkpoint replaces them, unless the last one was longer.
const CHECKPOINT_BYTES: u64 = 64 << 20;

/// Name of a file beside the journal of a replica that gets everything from the others.
const REPLACED: &str = "replaced";
/// Name of that file while the journal is being removed.
const REMOVING: &str = "removing";

/// Why the journal of a replica cannot be used.
#[derive(Debug, Error)]
pub enum StorageError {
    /// The directory cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The files of the directory cannot be removed.
    #[error("cannot remove what is in {}", directory.display())]
    Remove {
        /// The directory.
        directory: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// Some files of the directory were removed.
    #[error("{} was removed in part: repeat `replace` for this replica", .0.display())]
    Removing(PathBuf),
    /// A record is not one of a log.
    #[error("record {number} in {directory} is not one of a log", directory = directory.display())]
    Record {
        /// The directory.
        directory: PathBuf,
        /// Number of the record.
        number: u64,
    },
    /// The log and the state do not fit together.
    #[error("the log in {directory} cannot be used", directory = directory.display())]
    Restore {
        /// The directory.
        directory: PathBuf,
        /// The reason.
        source: RestoreError,
    },
}

/// What the directory of a replica has.
pub(crate) struct Opened {
    pub directory: PathBuf,
    pub journal: Journal,
    pub checkpoint: Option<(u64, Vec<u8>)>,
    pub records: Vec<Record>,
}

/// Returns the identity of a replica's journal, so that no other directory is taken for it.
fn store_id(replicas: usize, process: ProcessId) -> StoreId {
    let mut id = *b"onepipe log     ";
    id[12..14].copy_from_slice(&(replicas as u16).to_le_bytes());
    id[14..].copy_from_slice(&(process.0 as u16).to_le_bytes());
    StoreId(id)
}

/// Returns the directory of a replica in that of the log.
fn replica_directory(directory: &Path, process: ProcessId) -> PathBuf {
    directory.join(format!("replica-{}", process.0))
}

/// Removes what the directory of a replica has, whose program does not run. When it starts, it gets
/// everything from the others. Other files than those of its journal are removed, too; the
/// directory stays, as it may be a link to another disk.
///
/// If the others have ended as well, the log goes on without what this replica had. That is safe
/// unless it had gone on alone after all others had ended: then what was committed since is lost.
///
/// # Errors
/// The directory is in use, or the system refuses.
pub fn replace_replica(directory: &Path, process: ProcessId) -> Result<(), StorageError> {
    let directory = replica_directory(directory, process);
    let disk = Directory::open(&directory)?;
    let remove = || {
        // A part of a journal may look like an older one that is complete.
        disk.create(REMOVING)?;
        disk.sync_directory()?;
        for name in disk.list()? {
            let is_needed = [REMOVING, LOCK_NAME].contains(&name.as_str());
            if !is_needed && disk.path(&name).is_file() {
                disk.remove(&name)?;
            }
        }
        disk.sync_directory()?;
        disk.rename(REMOVING, REPLACED)?;
        disk.sync_directory()
    };
    remove().map_err(|source| StorageError::Remove { directory, source })
}

impl Opened {
    /// Opens the directory of a replica in that of the log.
    pub fn open(
        directory: &Path,
        process: ProcessId,
        replicas: usize,
    ) -> Result<Self, StorageError> {
        let directory = replica_directory(directory, process);
        if directory.join(REMOVING).exists() {
            return Err(StorageError::Removing(directory));
        }
        let mut options = Options::new(store_id(replicas, process));
        options.snapshot_count = 2;
        let (journal, recovered) = Journal::open(&directory, options)?;
        let parse = |record: &onepipe_journal::Record| {
            let number = record.position;
            let malformed = StorageError::Record { directory: directory.clone(), number };
            Record::parse(number, &record.payload).ok_or(malformed)
        };
        let records: Result<_, _> = recovered.records.iter().map(parse).collect();
        let records = records?;
        let checkpoint = recovered.snapshot.map(|snapshot| (snapshot.position, snapshot.bytes));
        Ok(Self { directory, journal, checkpoint, records })
    }

    /// Returns what the replica has of the log, which was restored from this directory.
    pub fn own_log(&self, replica: &LogReplica) -> OwnLog {
        let path = self.directory.join(REPLACED);
        match replica.own_log() {
            OwnLog::Empty if path.exists() => OwnLog::Replaced,
            OwnLog::Empty => OwnLog::Empty,
            own => {
                // The replica has got its log. The file means nothing beside one.
                let _ = std::fs::remove_file(path);
                own
            }
        }
    }
}

/// The journal of a replica that runs.
pub(crate) struct Storage {
    /// Ends before the writer.
    checkpoint: Option<JoinHandle<Result<FinishedSnapshot, JournalError>>>,
    writer: Arc<Writer>,
    /// Number of the last record that the last checkpoint includes.
    checkpoint_number: u64,
    /// Bytes of the records since the last checkpoint, and of that.
    log_bytes: u64,
    checkpoint_bytes: u64,
    checkpoints: u64,
}

impl Storage {
    /// Starts the thread that writes the journal. It rings `bell` when more is stored.
    pub fn start(journal: Journal, bell: Doorbell) -> std::io::Result<Self> {
        let writer = Arc::new(Writer::start(journal, move |_| bell.ring())?);
        let checkpoint_number = writer.status().snapshot;
        let (log_bytes, checkpoint_bytes, checkpoints) = (0, 0, 0);
        Ok(Self {
            checkpoint: None,
            writer,
            checkpoint_number,
            log_bytes,
            checkpoint_bytes,
            checkpoints,
        })
    }

    /// Stores what the replica has recorded, and notes what is stored.
    ///
    /// # Errors
    /// Why the disk does not take what is written.
    pub fn store(&mut self, replica: &mut LogReplica) -> Result<(), Arc<str>> {
        while let Some(record) = replica.poll_record() {
            let bytes = record.to_bytes();
            self.log_bytes += bytes.len() as u64;
            if let Err(error) = self.writer.append(record.number, bytes) {
                // A disk that has failed before is the reason why too much waits for it.
                let failure = self.writer.status().failure;
                return Err(failure.map_or_else(|| error.to_string().into(), |one| describe(&one)));
            }
        }
        replica.on_stored(self.writer.durable());
        Ok(())
    }

    /// Advances checkpoints, and looks at the disk. Called about ten times a second.
    ///
    /// # Errors
    /// Why the disk does not take what is written.
    pub fn advance(&mut self, replica: &LogReplica) -> Result<(), Arc<str>> {
        let status = self.writer.status();
        if let Some(failure) = status.failure {
            tracing::error!(%failure, "a replica ends, as its journal has failed");
            return Err(describe(&failure));
        }
        if let Some(error) = status.snapshot_error {
            tracing::warn!(%error, "a checkpoint was not stored");
        }
        if let Some(task) = self.checkpoint.take_if(|task| task.is_finished()) {
            match task.join() {
                Ok(Ok(finished)) => {
                    let installed = self.writer.install(finished);
                    installed.map_err(|error| Arc::from(error.to_string()))?;
                    self.checkpoints += 1;
                }
                Ok(Err(error)) => tracing::warn!(%error, "a checkpoint was not written"),
                Err(_) => tracing::error!("the thread that writes a checkpoint has panicked"),
            }
        }
        if self.checkpoint.is_none()
            && self.log_bytes > CHECKPOINT_BYTES.max(2 * self.checkpoint_bytes)
            && let Some((number, bytes)) = replica.checkpoint(self.checkpoint_number)
        {
            self.checkpoint_number = number;
            (self.log_bytes, self.checkpoint_bytes) = (0, bytes.len() as u64);
            let writer = Arc::clone(&self.writer);
            let thread = std::thread::Builder::new().name("log-checkpoint".into());
            let task = thread.spawn(move || {
                let mut snapshot = writer.begin_snapshot(number)?;
                snapshot.append(&bytes)?;
                snapshot.finish()
            });
            self.checkpoint = task.ok();
        }
        Ok(())
    }

    /// Returns the number of checkpoints since the start.
    pub fn checkpoints(&self) -> u64 {
        self.checkpoints
    }
}

/// Returns what has failed, where, and what to do.
fn describe(failure: &Failure) -> Arc<str> {
    let advice = match failure.is_disk_full() {
        true => {
            "no acknowledged entry is lost: free space on this disk, then start the replica again; \
             it gets from the others what it lacks"
        }
        false => "check the disk, then start the replica again, or replace it",
    };
    let Failure { operation, path, source, .. } = failure;
    format!("cannot {operation} {}: {source}: {advice}", path.display()).into()
}

impl Drop for Storage {
    fn drop(&mut self) {
        if let Some(task) = self.checkpoint.take() {
            // A checkpoint that does not count is removed by the next start.
            let _ = task.join();
        }
    }
}
