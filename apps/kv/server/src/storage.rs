//! The logs of the replicas, on disk.

mod error;
mod exchange;
mod layout;
mod log_writer;
#[cfg_attr(not(test), expect(dead_code, reason = "the driver of single replicas uses this"))]
mod own;
mod recovery;
mod repair;
#[cfg_attr(not(test), expect(dead_code, reason = "the driver of single replicas uses this"))]
mod replacement;
#[cfg(test)]
mod sample;
mod schedule;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use onepipe::{Doorbell, Timestamp};
use onepipe_journal::{Options, SyncPolicy, Writer};
use onepipe_kv::Store;
use onepipe_transaction::Replica;

pub use error::StorageError;
use exchange::finish_replacement;
use layout::{replica_name, store_id};
pub(crate) use log_writer::LogWriter;
use recovery::{Opened, Restored, restore};
pub use repair::{RepairError, RepairedLog, repair};
use schedule::Schedule;

/// Largest size of a segment of a log.
const SEGMENT_BYTES_MAX: u64 = 64 << 20;
/// Number of segments that a log grows by until the next snapshot. Only whole segments are removed,
/// so one of them may be retained longer than needed.
const SEGMENTS_PER_SNAPSHOT: u64 = 4;
/// Number of snapshots that a replica retains, with the log back to the older one. One that is
/// damaged costs a longer replay then. With one alone, a store without other replicas would lose
/// all that the snapshot holds.
const SNAPSHOTS: usize = 2;

/// Where and how replicas store what they execute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageOptions {
    /// The directory of the store. Each replica has a directory in it.
    pub directory: PathBuf,
    /// When records reach the disk. Replies wait for this.
    pub policy: SyncPolicy,
    /// Bytes by which the log of a replica grows at least until the next snapshot. A log grows by
    /// as much as the last snapshot has, if that is longer.
    pub snapshot_bytes: u64,
}

impl StorageOptions {
    /// Returns the settings of the log of a shard's replica.
    fn journal_options(&self, shard: u16, shape: (u16, u16)) -> Options {
        let mut options = Options::new(store_id(shard, shape));
        options.policy = self.policy;
        options.snapshot_count = SNAPSHOTS;
        options.segment_bytes =
            (self.snapshot_bytes / SEGMENTS_PER_SNAPSHOT).clamp(1, SEGMENT_BYTES_MAX);
        options
    }
}

/// A replica with its log, before it serves.
pub(crate) struct Stored {
    restored: Restored,
    policy: SyncPolicy,
    schedule: Schedule,
}

impl Stored {
    /// Returns the timestamp of the last stored write. What follows must have a higher one.
    pub fn last(&self) -> Option<Timestamp> {
        self.restored.replica.executed()
    }

    /// Starts the thread that writes the log. It rings `bell` when more is stored.
    pub fn start(self, bell: Doorbell) -> std::io::Result<(Replica<Store>, LogWriter)> {
        let Restored { replica, journal, .. } = self.restored;
        let last = journal.last();
        let writer = Writer::start(journal, move |_| bell.ring())?;
        let log = LogWriter::new(writer, (self.policy, last), self.schedule);
        Ok((replica, log))
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
    let names: Vec<String> = names.collect();
    names.iter().try_for_each(|name| finish_replacement(&options.directory, name))?;
    let directories: Vec<PathBuf> = names.iter().map(|name| options.directory.join(name)).collect();
    check_shape(&options.directory, &directories)?;
    let mut opened = Vec::new();
    for (index, directory) in directories.into_iter().enumerate() {
        let shard = (index / usize::from(replicas)) as u16;
        let journal_options = options.journal_options(shard, (shards, replicas));
        opened.push(Opened::open(directory, shard, journal_options)?);
    }
    let stored = restore(opened)?.into_iter().map(|restored| {
        let Restored { snapshot_bytes, log_bytes, .. } = restored;
        let schedule = Schedule::new(options.snapshot_bytes, snapshot_bytes, log_bytes);
        Stored { restored, policy: options.policy, schedule }
    });
    Ok(stored.collect())
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
