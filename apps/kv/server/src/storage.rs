//! The logs of the replicas, on disk.

mod error;
mod layout;
mod repair;

use std::cell::Cell;
use std::path::{Path, PathBuf};

use onepipe::{Doorbell, Timestamp};
use onepipe_journal::{Journal, JournalError, Options, SyncPolicy, Writer};
use onepipe_kv::Store;
use onepipe_transaction::{Log, Record, Replica, ReplicaOptions, complete};

pub use error::StorageError;
use layout::{parse, replica_name, store_id};
pub use repair::{RepairError, RepairedLog, repair};

/// Where and how replicas store what they execute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageOptions {
    /// The directory of the store. Each replica has a directory in it.
    pub directory: PathBuf,
    /// When records reach the disk. Replies wait for this.
    pub policy: SyncPolicy,
}

/// A replica with its log, before it serves.
pub(crate) struct Stored {
    pub replica: Replica<Store>,
    journal: Journal,
}

impl Stored {
    /// Returns the timestamp of the last stored write. What follows must have a higher one.
    pub fn last(&self) -> Option<Timestamp> {
        self.replica.executed()
    }

    /// Starts the thread that writes the log. It rings `bell` when more is stored.
    pub fn start(self, bell: Doorbell) -> std::io::Result<(Replica<Store>, LogWriter)> {
        let last = self.journal.last();
        let writer = Writer::start(self.journal, move |_| bell.ring())?;
        Ok((self.replica, LogWriter { writer, appended: Cell::new(last) }))
    }
}

/// Appends to the log of a replica.
pub(crate) struct LogWriter {
    writer: Writer,
    appended: Cell<u64>,
}

impl LogWriter {
    /// Appends a record; the disk is written by another thread.
    pub fn append(&self, record: &Record) -> Result<(), JournalError> {
        let mut bytes = Vec::new();
        record.write(&mut bytes);
        self.writer.append(record.number, bytes)?;
        self.appended.set(record.number);
        Ok(())
    }

    /// Returns the number of the last record after which replies may be sent.
    pub fn acknowledged(&self) -> u64 {
        self.writer.acknowledged()
    }

    /// Returns the number of the last record that was appended.
    pub fn appended(&self) -> u64 {
        self.appended.get()
    }

    /// Returns why the disk does not take what is appended, if it does not, and tries again.
    pub fn retry(&self) -> Option<String> {
        let failure = self.writer.status().failure?;
        // An error is the failure that is reported the next time.
        let _ = self.writer.reopen();
        let (operation, path) = (failure.operation, failure.path.display());
        Some(format!("{} (cannot {operation} {path})", failure.source))
    }
}

/// Opens the logs of all replicas, in the order of their processes, and completes them from each
/// other, as all of them have ended at once.
pub(crate) fn open(
    options: &StorageOptions,
    (shards, replicas): (u16, u16),
) -> Result<Vec<Stored>, StorageError> {
    let names = (0..shards)
        .flat_map(|shard| (0..replicas).map(move |replica| replica_name(shard, replica)));
    let directories: Vec<PathBuf> = names.map(|name| options.directory.join(name)).collect();
    check_shape(&options.directory, &directories)?;
    let mut journals = Vec::new();
    let mut logs = Vec::new();
    for (index, directory) in directories.iter().enumerate() {
        let shard = (index / usize::from(replicas)) as u16;
        let (journal, log) = open_one(options, directory, (shard, (shards, replicas)))?;
        journals.push(journal);
        logs.push(log);
    }
    let missing = complete(&logs);
    let mut stored = Vec::new();
    for (((mut journal, log), missing), directory) in
        journals.into_iter().zip(logs).zip(missing).zip(directories)
    {
        let options = ReplicaOptions { is_durable: true };
        let mut replica = Replica::new(log.shard, Store::default(), options);
        let explain = |error| StorageError::Write { directory: directory.clone(), error };
        for record in &missing {
            let mut bytes = Vec::new();
            record.write(&mut bytes);
            journal.append(record.number, &bytes).map_err(explain)?;
        }
        journal.sync().map_err(explain)?;
        if !missing.is_empty() {
            tracing::info!(directory = %directory.display(), count = missing.len(),
                "completed the log from those of other replicas");
        }
        log.records.iter().chain(&missing).for_each(|record| replica.replay(record));
        stored.push(Stored { replica, journal });
    }
    Ok(stored)
}

/// Opens the log of one replica.
fn open_one(
    options: &StorageOptions,
    directory: &Path,
    (shard, shape): (u16, (u16, u16)),
) -> Result<(Journal, Log), StorageError> {
    let mut journal_options = Options::new(store_id(shard, shape));
    journal_options.policy = options.policy;
    let (journal, recovered) = Journal::open(directory, journal_options)?;
    if let Some(repair) = recovered.repaired {
        tracing::warn!(path = %repair.path.display(), offset = repair.offset,
            bytes = repair.bytes, "cut off the torn end of the log");
    }
    let records = recovered
        .records
        .into_iter()
        .map(|record| parse(directory, record))
        .collect::<Result<_, _>>()?;
    Ok((journal, Log { shard, snapshot: None, records }))
}

/// Refuses a directory that holds replicas beyond `expected`: they would be left behind.
fn check_shape(directory: &Path, expected: &[PathBuf]) -> Result<(), StorageError> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Ok(()) };
    let found: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("shard-"))
        })
        .collect();
    let is_other = !found.is_empty()
        && (found.len() != expected.len() || found.iter().any(|path| !expected.contains(path)));
    match is_other {
        true => Err(StorageError::Shape {
            directory: directory.into(),
            found: found.len(),
            expected: expected.len(),
        }),
        false => Ok(()),
    }
}
