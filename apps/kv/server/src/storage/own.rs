//! The log of one replica, in a program that does not have those of the others.

#[cfg(test)]
mod tests;

use onepipe::Timestamp;
use onepipe_journal::{Disk, Journal, Salvaged, Snapshot, StoreId};
use onepipe_kv::Store;
use onepipe_transaction::{ImageHeader, Log, Position, Replica};

use super::StorageOptions;
use super::error::StorageError;
use super::exchange::finish_replacement;
use super::layout::{parse, replica_name};
use super::recovery::{Opened, Restored, load};
use super::replacement::Contents;

/// A replica that has executed what its own log holds, as in the run before.
pub(crate) struct OpenedReplica {
    pub restored: Restored,
    /// What the log holds, for others to be completed from.
    pub log: Log,
}

/// Opens the log of a replica, which is created if it does not exist. Those of other replicas are
/// not looked at: they need not be on this machine, and may be in use.
///
/// Clients and members of the run before are known to the replica, unlike after
/// [`super::recovery::restore`]: that run may go on.
///
/// # Errors
/// [`StorageError`] if the log is in use, damaged or of another store, or if the system fails.
pub(crate) fn open_replica(
    options: &StorageOptions,
    shape: (u16, u16),
    (shard, replica): (u16, u16),
) -> Result<OpenedReplica, StorageError> {
    let name = replica_name(shard, replica);
    finish_replacement(&options.directory, &name)?;
    let directory = options.directory.join(name);
    let opened = Opened::open(directory, shard, options.journal_options(shard, shape))?;
    let Opened { directory, journal, mut replica, snapshot_bytes, log_bytes, log } = opened;
    log.records.iter().for_each(|record| replica.replay(record));
    let restored = Restored { directory, replica, journal, snapshot_bytes, log_bytes };
    Ok(OpenedReplica { restored, log })
}

/// A replica without its void records, and what its log holds without them.
pub(crate) struct Rebuilt {
    pub replica: Replica<Store>,
    /// The last write that the snapshot includes.
    pub snapshot: Option<Position>,
    pub contents: Contents,
}

/// Reads the log of a replica of `shard` again, and returns the replica as it was when it had
/// executed the writes below `before`, and none at or above: those are void.
///
/// The log may be open: `disk` is that of its journal or writer, which has the lock of the
/// directory. Records below `before` must have been written, and no snapshot may be installed
/// meanwhile.
///
/// # Errors
/// [`StorageError::NotBack`] if the log begins later, and no snapshot that ends below `before`
/// precedes it; others if the log is damaged, or if the system fails.
pub(crate) fn rebuild<D: Disk>(
    disk: &D,
    store: StoreId,
    shard: u16,
    before: Timestamp,
) -> Result<Rebuilt, StorageError> {
    let directory = disk.path("");
    let Salvaged { snapshots, records, damage, .. } = Journal::salvage_on(disk, store)?;
    if let Some(damage) = damage {
        return Err(damage.into());
    }
    let newest = snapshots.last().map_or(0, |snapshot| snapshot.position);
    let last = records.last().map_or(0, |record| record.position).max(newest);
    let ends_below = |snapshot: &&Snapshot| {
        let end = ImageHeader::parse(&snapshot.bytes).and_then(|header| header.position);
        end.is_none_or(|(at, _)| at < before)
    };
    let snapshot = snapshots.iter().rfind(ends_below);
    let (mut replica, snapshotted) = load(&directory, shard, snapshot)?;
    let base = replica.recorded();
    let image = snapshot.map_or_else(Vec::new, |snapshot| snapshot.bytes.clone());
    let mut contents = Contents { number: base, image, records: Vec::new() };
    let snapshot = snapshotted.map(|(_, position)| position);
    for record in records.into_iter().filter(|record| record.position > base) {
        let record = parse(&directory, record)?;
        if record.number != replica.recorded() + 1 {
            break;
        }
        if record.at >= before {
            return Ok(Rebuilt { replica, snapshot, contents });
        }
        replica.replay(&record);
        contents.records.push(record);
    }
    match replica.recorded() {
        end if end == last => Ok(Rebuilt { replica, snapshot, contents }),
        end => {
            let (before, missing) = (before.as_ns(), end + 1);
            Err(StorageError::NotBack { directory, before, missing })
        }
    }
}
