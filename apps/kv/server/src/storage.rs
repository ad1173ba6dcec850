//! The logs of the replicas, on disk.

mod error;
mod exchange;
mod layout;
mod log_writer;
mod own;
mod recovery;
mod repair;
mod replacement;
mod replica_log;
#[cfg(test)]
mod sample;
mod schedule;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use onepipe::{Doorbell, Timestamp};
use onepipe_journal::{Options, SyncPolicy};
use onepipe_kv::Store;
use onepipe_transaction::{LogSummary, OwnLog, Replica};

pub use error::StorageError;
use exchange::finish_replacement;
use layout::{replica_name, store_id};
use own::{OpenedReplica, open_replica};
use recovery::{Opened, Restored, restore};
pub use repair::{RepairError, RepairedLog, repair};
pub(crate) use replica_log::{CutOff, ReplicaLog};

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
    options: StorageOptions,
}

impl Stored {
    /// Returns the timestamp of the last stored write. What follows must have a higher one.
    pub fn last(&self) -> Option<Timestamp> {
        self.restored.replica.executed()
    }

    /// Starts the thread that writes the log. It rings `bell` when more is stored.
    pub fn start(self, bell: Doorbell) -> std::io::Result<(Replica<Store>, ReplicaLog)> {
        let Restored { directory, replica, journal, snapshot_bytes, log_bytes } = self.restored;
        let lengths = (snapshot_bytes, log_bytes);
        Ok((replica, ReplicaLog::open(directory, journal, self.options, lengths, bell)?))
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
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let start = since_epoch.map_or(0, |since_epoch| since_epoch.as_nanos() as u64);
    let restored = restore(opened, start)?.into_iter();
    Ok(restored.map(|restored| Stored { restored, options: options.clone() }).collect())
}

/// Opens the log of one replica, given by its shard and its number in the shard. Returns it with
/// what others may need of it. The replica has executed what the log holds.
pub(crate) fn open_one(
    options: &StorageOptions,
    shape: (u16, u16),
    replica: (u16, u16),
) -> Result<(Stored, OwnLog), StorageError> {
    let OpenedReplica { restored, log } = open_replica(options, shape, replica)?;
    let own = OwnLog { summary: LogSummary::of(&log), records: log.records };
    Ok((Stored { restored, options: options.clone() }, own))
}

/// Appends records to the log of one replica.
#[cfg(test)]
pub(crate) fn append_to(
    options: &StorageOptions,
    shape: (u16, u16),
    replica: (u16, u16),
    records: &[onepipe_transaction::Record],
) -> Result<u64, StorageError> {
    let OpenedReplica { restored: Restored { directory, mut journal, .. }, .. } =
        open_replica(options, shape, replica)?;
    let appended = recovery::append(&mut journal, records);
    appended.map_err(|error| StorageError::Write { directory, error })
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
