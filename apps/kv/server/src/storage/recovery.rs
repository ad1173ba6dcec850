//! What replicas are when they start again.

use std::path::{Path, PathBuf};

use onepipe::ProcessId;
use onepipe_journal::{Directory, Disk, Journal, Options, Recovered, Snapshot};
use onepipe_kv::Store;
use onepipe_transaction::{
    Log, LogSummary, Position, Record, Replica, ReplicaOptions, Role, Roles, complete,
};

use super::error::StorageError;
use super::layout::{encode, parse};

/// The last write that a snapshot includes: its number, and its position in the total order.
pub(super) type Snapshotted = (u64, Position);

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
    pub directory: PathBuf,
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
        let log = Log { shard, snapshot, members: replica.members().clone(), records };
        Ok(Self { directory, journal, replica, snapshot_bytes, log_bytes, log })
    }
}

/// Returns the replica of `shard` as of a snapshot of the log in `directory`, and which is the last
/// write in it. Without a snapshot it is the initial one.
pub(super) fn load(
    directory: &Path,
    shard: u16,
    snapshot: Option<&Snapshot>,
) -> Result<(Replica<Store>, Option<Snapshotted>), StorageError> {
    let mut replica = Replica::new(shard, Store::default(), ReplicaOptions { is_durable: true });
    let Some(Snapshot { position: number, bytes }) = snapshot else { return Ok((replica, None)) };
    let is_loaded = replica.load(bytes) && replica.recorded() == *number;
    match replica.executed_position().filter(|_| is_loaded) {
        Some(position) => Ok((replica, Some((*number, position)))),
        None => Err(StorageError::Snapshot { directory: directory.into(), number: *number }),
    }
}

/// Completes the logs from each other, and executes them. `start` is the time in ns.
pub(super) fn restore<D: Disk>(
    opened: Vec<Opened<D>>,
    start: u64,
) -> Result<Vec<Restored<D>>, StorageError> {
    let logs: Vec<&Log> = opened.iter().map(|one| &one.log).collect();
    let summaries = logs.iter().map(|log| LogSummary::of(log));
    let roles = Roles::assign(&(0..).map(ProcessId).zip(summaries).collect(), start)?;
    for (one, role) in opened.iter().zip(roles.roles.values()) {
        check_role(&one.directory, &one.log, *role)?;
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
        replica.begin_run(roles.members.clone());
        restored.push(Restored { directory, replica, journal, snapshot_bytes, log_bytes });
    }
    Ok(restored)
}

/// Refuses a log that cannot be completed from those of others.
pub(super) fn check_role(directory: &Path, log: &Log, role: Role) -> Result<(), StorageError> {
    let directory = directory.to_path_buf();
    match role {
        Role::Complete { before: None } => Ok(()),
        Role::Complete { before: Some(before) } => {
            Err(StorageError::Void { directory, before: before.as_ns() })
        }
        Role::CatchUp => {
            let last = log.last().map_or(0, |(number, _)| number);
            Err(StorageError::Behind { directory, last })
        }
    }
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
