//! What replicas are when they start again.

use std::path::{Path, PathBuf};

use onepipe::{ProcessId, Timestamp};
use onepipe_journal::{Directory, Disk, Journal, Options, Recovered, Snapshot};
use onepipe_kv::Store;
use onepipe_transaction::{Log, Record, Replica, ReplicaOptions, complete};

use super::error::StorageError;
use super::layout::{encode, parse};

/// Number of the last write in a snapshot, and its position in the total order.
type Position = (u64, (Timestamp, ProcessId));

/// The log of a replica as it was found.
pub(super) struct Opened<D: Disk = Directory> {
    pub directory: PathBuf,
    pub journal: Journal<D>,
    /// The replica as of its snapshot.
    pub replica: Replica<Store>,
    /// Length of its snapshot, and bytes of the records behind it.
    pub snapshot_bytes: u64,
    pub log_bytes: u64,
    pub log: Log,
}

/// A replica that has executed all that its log holds.
pub(crate) struct Restored<D: Disk = Directory> {
    pub replica: Replica<Store>,
    pub journal: Journal<D>,
    /// Length of its snapshot, and bytes of the records behind it.
    pub snapshot_bytes: u64,
    pub log_bytes: u64,
}

impl Opened {
    /// Opens the log of a replica of `shard`, which is created if it does not exist.
    pub fn open(directory: PathBuf, shard: u16, options: Options) -> Result<Self, StorageError> {
        let (journal, recovered) = Journal::open(&directory, options)?;
        Self::read(directory, shard, journal, recovered)
    }
}

impl<D: Disk> Opened<D> {
    /// Loads the snapshot that a journal has recovered, and parses its records.
    pub fn read(
        directory: PathBuf,
        shard: u16,
        journal: Journal<D>,
        recovered: Recovered,
    ) -> Result<Self, StorageError> {
        if let Some(repair) = recovered.repaired {
            tracing::warn!(path = %repair.path.display(), offset = repair.offset,
                bytes = repair.bytes, "cut off the torn end of the log");
        }
        for path in recovered.damaged_snapshots {
            tracing::warn!(path = %path.display(), "a damaged snapshot is not used");
        }
        let found = recovered.snapshot;
        let (replica, snapshot) = load(&directory, shard, found.as_ref())?;
        let snapshot_bytes = found.map_or(0, |found| found.bytes.len() as u64);
        let log_bytes = recovered.records.iter().map(|record| record.payload.len() as u64).sum();
        let records = recovered.records.into_iter().map(|record| parse(&directory, record));
        let records = records.collect::<Result<_, _>>()?;
        let log = Log { shard, snapshot, records };
        Ok(Self { directory, journal, replica, snapshot_bytes, log_bytes, log })
    }
}

/// Returns the replica of `shard` as of a snapshot of the log in `directory`, and which is the last
/// write in it. Without a snapshot it is the initial one.
pub(super) fn load(
    directory: &Path,
    shard: u16,
    snapshot: Option<&Snapshot>,
) -> Result<(Replica<Store>, Option<Position>), StorageError> {
    let mut replica = Replica::new(shard, Store::default(), ReplicaOptions { is_durable: true });
    let Some(Snapshot { position: number, bytes }) = snapshot else { return Ok((replica, None)) };
    let is_loaded = replica.load(bytes) && replica.recorded() == *number;
    match replica.executed_position().filter(|_| is_loaded) {
        Some(position) => Ok((replica, Some((*number, position)))),
        None => Err(StorageError::Snapshot { directory: directory.into(), number: *number }),
    }
}

/// Completes the logs from each other, and executes them.
pub(super) fn restore<D: Disk>(opened: Vec<Opened<D>>) -> Result<Vec<Restored<D>>, StorageError> {
    let logs: Vec<&Log> = opened.iter().map(|one| &one.log).collect();
    if let Some((at, last)) = find_behind(&logs) {
        return Err(StorageError::Behind { directory: opened[at].directory.clone(), last });
    }
    let missing = complete(&logs);
    let mut restored = Vec::new();
    for (one, missing) in opened.into_iter().zip(missing) {
        let Opened { directory, mut journal, mut replica, snapshot_bytes, mut log_bytes, log } =
            one;
        log_bytes += append(&mut journal, &missing)
            .map_err(|error| StorageError::Write { directory: directory.clone(), error })?;
        if !missing.is_empty() {
            tracing::info!(directory = %directory.display(), count = missing.len(),
                "completed the log from those of other replicas");
        }
        log.records.iter().chain(&missing).for_each(|record| replica.replay(record));
        replica.forget_previous_run();
        restored.push(Restored { replica, journal, snapshot_bytes, log_bytes });
    }
    Ok(restored)
}

/// Returns a log, and the number of its last record, that ends before a snapshot of another one of
/// its shard. That snapshot counted when all replicas had stored what it holds, so the log is an
/// older copy. Other logs do not complete it: they have dropped what it lacks.
pub(super) fn find_behind(logs: &[&Log]) -> Option<(usize, u64)> {
    let end = |log: &Log| {
        let last = log.records.last().map(|record| (record.number, record.position()));
        last.or(log.snapshot)
    };
    let is_behind = |log: &&Log| {
        let snapshots = logs.iter().filter(|other| other.shard == log.shard);
        let newest = snapshots.filter_map(|other| other.snapshot).map(|(_, at)| at).max();
        newest > end(log).map(|(_, at)| at)
    };
    let behind = logs.iter().position(is_behind)?;
    Some((behind, end(logs[behind]).map_or(0, |(number, _)| number)))
}

/// Appends records, and waits until they are on the disk. Returns their bytes.
pub(super) fn append<'a, D: Disk>(
    journal: &mut Journal<D>,
    records: impl IntoIterator<Item = &'a Record>,
) -> Result<u64, onepipe_journal::JournalError> {
    let mut bytes = 0;
    for record in records {
        let encoded = encode(record);
        journal.append(record.number, &encoded)?;
        bytes += encoded.len() as u64;
        // The journal bounds what it holds in memory.
        if journal.buffered_bytes() > journal.options().buffered_bytes_max / 2 {
            journal.sync()?;
        }
    }
    journal.sync()?;
    Ok(bytes)
}
