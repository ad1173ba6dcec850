//! What is intact of the logs of a store.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use onepipe::{ProcessId, Timestamp};
use onepipe_journal::{Journal, Options, Salvaged, Snapshot};
use onepipe_transaction::{ImageHeader, Log, Members, Record};

use super::RepairError;
use crate::storage::error::StorageError;
use crate::storage::exchange::{finish_replacement, replica_of};
use crate::storage::layout::{parse, replica_name, store_id};

/// A log as far as it is intact.
pub struct Intact {
    pub directory: PathBuf,
    pub options: Options,
    /// Why the log cannot be used as it is.
    pub damage: Option<String>,
    /// The newest intact snapshot, and consecutive records after it.
    pub log: Log,
    /// The records behind those that are missing.
    pub behind: Log,
    /// The records that the snapshot holds, too.
    pub before: Log,
    /// Number of the last write of the newest snapshot that is damaged.
    damaged_snapshot: Option<u64>,
}

impl Intact {
    /// Returns number and position of the last write before the damage.
    pub fn end(&self) -> Option<(u64, (Timestamp, ProcessId))> {
        let last = self.log.records.last().map(|record| (record.number, record.position()));
        last.or(self.log.snapshot)
    }

    /// Returns the snapshot of [`Intact::log`].
    pub fn read_snapshot(&self) -> Result<Option<Snapshot>, RepairError> {
        let Some((number, _)) = self.log.snapshot else { return Ok(None) };
        let found = Journal::salvage(&self.directory, self.options.store);
        let mut snapshots = found.map_err(StorageError::Open)?.snapshots;
        let newest = snapshots.pop().filter(|snapshot| snapshot.position == number);
        let io = || RepairError::Io {
            path: self.directory.clone(),
            source: std::io::Error::other("its snapshot has changed meanwhile"),
        };
        newest.map(Some).ok_or_else(io)
    }

    /// Returns what may be lost if the log is completed from `logs`, all that is intact.
    pub fn loss(&self, logs: &[&Log]) -> Option<RepairError> {
        let damage = self.damage.clone()?;
        let end = self.end();
        let (last, after) = end.map_or((0, None), |(last, position)| (last, Some(position)));
        let behind = self.behind.records.last();
        // The records behind the damage, and the name of a snapshot, say how many writes there
        // were.
        let known = behind.map(|record| record.number).max(self.damaged_snapshot);
        let until = behind.map(Record::position);
        let mut held = BTreeSet::new();
        for record in logs.iter().flat_map(|log| &log.records) {
            let is_later = until.is_some_and(|until| record.position() > until)
                && known == behind.map(|record| record.number);
            if Some(record.position()) > after && !is_later && record.concerns(self.log.shard) {
                held.insert(record.position());
            }
        }
        let of_behind = self.behind.records.len() as u64;
        let missing = known.unwrap_or(0).saturating_sub(last + of_behind);
        let lost = missing.saturating_sub((held.len() as u64).saturating_sub(of_behind));
        let after_ns = after.map_or(0, |(at, _)| at.as_ns());
        if lost > 0 {
            let before = until.map(|(at, _)| at.as_ns());
            let first = last + 1;
            return Some(RepairError::Loss {
                damage,
                first,
                missing,
                lost,
                after: after_ns,
                before,
            });
        }
        // A snapshot was installed when all others had stored what it holds: so did this log.
        let snapshots = logs.iter().filter_map(|log| log.snapshot).map(|(_, position)| position);
        let overtaking = snapshots.max().filter(|snapshot| Some(*snapshot) > after.max(until))?;
        let until = overtaking.0.as_ns();
        Some(RepairError::Overtaken { damage, last, after: after_ns, until })
    }
}

/// Reads what is intact of each log.
pub fn read(directory: &Path) -> Result<Vec<Intact>, RepairError> {
    let replicas = replicas(directory)?;
    let shards = replicas.last().map_or(0, |(shard, _)| shard + 1);
    let of_shard = replicas.iter().map(|(_, replica)| replica + 1).max().unwrap_or(0);
    let mut intact = Vec::new();
    for shard in 0..shards {
        for replica in 0..of_shard {
            let name = replica_name(shard, replica);
            let directory = directory.join(&name);
            if !directory.is_dir() {
                let parent = directory.parent().unwrap_or(&directory).into();
                return Err(RepairError::Incomplete { directory: parent, missing: name });
            }
            let options = Options::new(store_id(shard, (shards, of_shard)));
            let salvaged =
                Journal::salvage(&directory, options.store).map_err(StorageError::Open)?;
            intact.push(divide(directory, options, shard, salvaged)?);
        }
    }
    match intact.is_empty() {
        true => {
            let (directory, missing) = (directory.into(), replica_name(0, 0));
            Err(RepairError::Incomplete { directory, missing })
        }
        false => Ok(intact),
    }
}

/// Returns the shard and the number of each replica. A replacement that was interrupted is
/// completed, or removed.
fn replicas(directory: &Path) -> Result<BTreeSet<(u16, u16)>, RepairError> {
    let io = |source| RepairError::Io { path: directory.into(), source };
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(directory).map_err(io)? {
        let name = entry.map_err(io)?.file_name().to_string_lossy().into_owned();
        let name = replica_of(&name).unwrap_or(&name);
        let Some(id) = parse_name(name) else { continue };
        finish_replacement(directory, name)?;
        found.insert(id);
    }
    Ok(found)
}

fn parse_name(name: &str) -> Option<(u16, u16)> {
    let (shard, replica) = name.strip_prefix("shard-")?.split_once('-')?;
    let id = (shard.parse().ok()?, replica.parse().ok()?);
    // Other spellings of the same numbers are none of a store.
    (replica_name(id.0, id.1) == name).then_some(id)
}

/// Divides the intact records: those that the newest intact snapshot holds, those up to the first
/// number that is missing, and those behind.
fn divide(
    directory: PathBuf,
    options: Options,
    shard: u16,
    salvaged: Salvaged,
) -> Result<Intact, StorageError> {
    let (mut snapshot, mut members) = (None, Members::default());
    if let Some(Snapshot { position: number, bytes }) = salvaged.snapshots.last() {
        let header = ImageHeader::parse(bytes).filter(|header| header.number == *number);
        let read = header.and_then(|header| Some((header.position?, header.members)));
        let (directory, number) = (directory.clone(), *number);
        let (position, known) = read.ok_or(StorageError::Snapshot { directory, number })?;
        (snapshot, members) = (Some((number, position)), known);
    }
    let records = salvaged.records.into_iter().map(|record| parse(&directory, record));
    let mut records = records.collect::<Result<Vec<_>, _>>()?;
    let base = snapshot.map_or(0, |(number, _)| number);
    let mut later = records.split_off(records.partition_point(|record| record.number <= base));
    let numbers = later.iter().map(|record| record.number);
    let consecutive = numbers.zip(base + 1..).take_while(|(number, next)| number == next).count();
    let behind = later.split_off(consecutive);
    let of_others = |records| {
        let members = Members::default();
        Log { shard, snapshot: None, members, records }
    };
    Ok(Intact {
        directory,
        options,
        damage: salvaged.damage.map(|damage| damage.to_string()),
        log: Log { shard, snapshot, members, records: later },
        behind: of_others(behind),
        before: of_others(records),
        damaged_snapshot: salvaged.damaged_snapshots.last().copied(),
    })
}

#[cfg(test)]
mod tests {
    use onepipe_transaction::{Request, RequestKind};

    use super::*;

    /// Returns the record of a write to shards 0 and 1.
    fn record(number: u64, ns: u64) -> Record {
        let (kind, session, attempt, finished, view) = (RequestKind::Write, 1, 0, 0, None);
        let parts = vec![(0, &b"one"[..]), (1, &b"two"[..])];
        let mut request = Vec::new();
        Request { kind, session, number, attempt, finished, view, parts }.write(&mut request);
        Record { number, at: Timestamp::from_ns(ns), from: ProcessId(9), request, members: None }
    }

    fn of(shard: u16, snapshot: Option<(u64, u64)>, records: &[(u64, u64)]) -> Log {
        let at = |ns| (Timestamp::from_ns(ns), ProcessId(9));
        let snapshot = snapshot.map(|(number, ns)| (number, at(ns)));
        let records = records.iter().map(|(number, ns)| record(*number, *ns)).collect();
        Log { shard, snapshot, members: Members::default(), records }
    }

    fn damaged(log: Log, behind: Log) -> Intact {
        let before = of(0, None, &[]);
        let (directory, options) = ("shard-0-0".into(), Options::new(store_id(0, (2, 1))));
        let (damage, damaged_snapshot) = (Some("damaged".into()), None);
        Intact { directory, options, damage, log, behind, before, damaged_snapshot }
    }

    /// Returns what is lost of a log of shard 0, with that of shard 1.
    fn loss(one: &Intact, other: &Log) -> Option<RepairError> {
        one.loss(&[&one.log, other, &one.behind, &one.before])
    }

    #[test]
    fn counts_what_is_missing_in_each_gap() {
        let one = damaged(of(0, None, &[(1, 10)]), of(0, None, &[(3, 30), (5, 50)]));
        let whole = of(1, None, &[(1, 10), (2, 20), (3, 30), (4, 40), (5, 50), (6, 60)]);
        assert!(loss(&one, &whole).is_none());
        let without_fourth = of(1, None, &[(1, 10), (2, 20), (3, 30), (4, 50)]);
        let found = loss(&one, &without_fourth);
        let Some(RepairError::Loss { first, missing, lost, before, .. }) = found else {
            panic!("{found:?}")
        };
        assert_eq!((first, missing, lost, before), (2, 2, 1, Some(50)));
    }

    #[test]
    fn log_that_ends_before_a_snapshot_is_overtaken() {
        let one = damaged(of(0, Some((2, 20)), &[(3, 30)]), of(0, None, &[]));
        assert!(loss(&one, &of(1, Some((3, 30)), &[(4, 40)])).is_none());
        // The other shard has dropped what it holds up to 40.
        let found = loss(&one, &of(1, Some((4, 40)), &[(5, 50)]));
        let Some(RepairError::Overtaken { last, after, until, .. }) = found else {
            panic!("{found:?}")
        };
        assert_eq!((last, after, until), (3, 30, 40));
    }

    #[test]
    fn damaged_snapshot_says_how_many_writes_there_were() {
        let mut one = damaged(of(0, None, &[]), of(0, None, &[]));
        one.damaged_snapshot = Some(3);
        let found = loss(&one, &of(1, None, &[(1, 10), (2, 20)]));
        assert!(matches!(found, Some(RepairError::Loss { lost: 1, missing: 3, .. })), "{found:?}");
        assert!(loss(&one, &of(1, None, &[(1, 10), (2, 20), (3, 30)])).is_none());
    }
}
