//! Replaces damaged logs by ones that are completed from those of other replicas and shards.
//!
//! Records of a log have consecutive numbers, so the intact records on both sides of the damage say
//! how many are missing in between. Each record holds its whole transaction, and the total order
//! says which records of other logs belong there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use onepipe_journal::{Journal, OpenError, Options, Salvaged};
use onepipe_transaction::{Log, Record, Request, complete};
use thiserror::Error;

use super::error::StorageError;
use super::layout::{parse, replica_name, store_id};

/// A log that was replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairedLog {
    /// The directory of the replica.
    pub directory: PathBuf,
    /// The damage: the file, and the offset in it.
    pub damage: String,
    /// Number of records that were read from the damaged log, before the damage.
    pub retained: usize,
    /// Number of records that were added behind them, from other logs or behind the damage.
    pub added: usize,
    /// Number of records that no log holds.
    pub lost: u64,
    /// The damaged log.
    pub copy: PathBuf,
}

/// Why a store cannot be repaired. Nothing was changed, unless the system failed in between: then
/// the repair can be repeated.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RepairError {
    /// A log cannot be read or written.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The directory has no replicas, or not all of them.
    #[error("{directory} is not a whole store: {missing} is missing; put it back")]
    Incomplete {
        /// The directory of the store.
        directory: PathBuf,
        /// The first missing replica.
        missing: String,
    },
    /// Records that may have been acknowledged are in no log.
    #[error(
        "{damage}; of the {missing} writes from record {first} on, {lost} are in no other log, and \
         may have been acknowledged: they took place after {after} and before {before} (ns since \
         1970); put back a copy of this directory, or accept the loss with --accept-loss"
    )]
    Loss {
        /// The damage.
        damage: String,
        /// Number of the first record that is missing.
        first: u64,
        /// Number of records that are missing.
        missing: u64,
        /// Number of those that no log holds.
        lost: u64,
        /// Timestamp of the last record before them, in ns.
        after: u64,
        /// Timestamp of the first record behind them, in ns.
        before: u64,
    },
    /// The system fails.
    #[error("cannot use {path}: {source}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
}

/// A log as far as it is intact.
struct Intact {
    directory: PathBuf,
    options: Options,
    damage: Option<OpenError>,
    /// Consecutive records from the first one on.
    log: Log,
    /// The records behind those that are missing.
    behind: Vec<Record>,
}

/// Repairs the store in `directory`, which no program uses: each damaged log is replaced by its
/// records before the damage, and those that other logs hold after them. The damaged one remains as
/// `damaged-…`. Returns what was replaced; nothing if all logs are intact.
///
/// # Errors
/// [`RepairError`]; [`RepairError::Loss`] unless `accepts_loss`.
pub fn repair(directory: &Path, accepts_loss: bool) -> Result<Vec<RepairedLog>, RepairError> {
    let intact = read(directory)?;
    let mut logs: Vec<Log> = intact.iter().map(|one| one.log.clone()).collect();
    logs.extend(intact.iter().map(|one| Log { records: one.behind.clone(), ..one.log }));
    let mut losses = Vec::new();
    for one in &intact {
        let loss = loss(one, &logs);
        match loss {
            Some(loss) if !accepts_loss => return Err(loss),
            Some(RepairError::Loss { lost, .. }) => losses.push(lost),
            _ => losses.push(0),
        }
    }
    let mut repaired = Vec::new();
    for ((one, missing), lost) in intact.iter().zip(complete(&logs)).zip(losses) {
        let Some(damage) = &one.damage else { continue };
        let copy = replace(directory, one, &missing)?;
        repaired.push(RepairedLog {
            directory: one.directory.clone(),
            damage: damage.to_string(),
            retained: one.log.records.len(),
            added: missing.len(),
            lost,
            copy,
        });
    }
    Ok(repaired)
}

/// Reads what is intact of each log.
fn read(directory: &Path) -> Result<Vec<Intact>, RepairError> {
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

/// Returns the shard and the number of each replica. A replacement that was not completed by an
/// earlier repair is completed, or removed.
fn replicas(directory: &Path) -> Result<BTreeSet<(u16, u16)>, RepairError> {
    let io = |source| RepairError::Io { path: directory.into(), source };
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(directory).map_err(io)? {
        let name = entry.map_err(io)?.file_name().to_string_lossy().into_owned();
        let of_replacement = name.strip_prefix(REPLACEMENT);
        let Some(id) = parse_name(of_replacement.unwrap_or(&name)) else { continue };
        if let Some(replica) = of_replacement {
            let (from, to) = (directory.join(&name), directory.join(replica));
            match to.is_dir() {
                true => fs::remove_dir_all(&from),
                // The damaged log has been renamed, so the replacement is whole.
                false => rename(directory, &from, &to),
            }
            .map_err(io)?;
        }
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

/// Divides the intact records at the first number that is missing.
fn divide(
    directory: PathBuf,
    options: Options,
    shard: u16,
    salvaged: Salvaged,
) -> Result<Intact, StorageError> {
    let records = salvaged.records.into_iter().map(|record| parse(&directory, record));
    let mut records = records.collect::<Result<Vec<_>, _>>()?;
    let numbers = records.iter().map(|record| record.number);
    let consecutive = numbers.zip(1..).take_while(|(number, expected)| number == expected).count();
    let behind = records.split_off(consecutive);
    let log = Log { shard, snapshot: None, records };
    Ok(Intact { directory, options, damage: salvaged.damage, log, behind })
}

/// Returns the loss, if more records of a log are missing than others hold in between.
fn loss(one: &Intact, logs: &[Log]) -> Option<RepairError> {
    let damage = one.damage.as_ref()?;
    let behind = one.behind.first()?;
    let last = one.log.records.last();
    let after = last.map(Record::position);
    let first = last.map_or(1, |last| last.number + 1);
    let missing = behind.number - first;
    let mut held = BTreeSet::new();
    for record in logs.iter().flat_map(|log| &log.records) {
        let is_between = Some(record.position()) > after && record.position() < behind.position();
        if is_between && concerns(record, one.log.shard) {
            held.insert(record.position());
        }
    }
    let lost = missing.saturating_sub(held.len() as u64);
    (lost > 0).then(|| RepairError::Loss {
        damage: damage.to_string(),
        first,
        missing,
        lost,
        after: last.map_or(0, |last| last.at.as_ns()),
        before: behind.at.as_ns(),
    })
}

fn concerns(record: &Record, shard: u16) -> bool {
    Request::parse(&record.request).is_some_and(|request| request.part(shard).is_some())
}

/// Beginning of the name of a directory that replaces another.
const REPLACEMENT: &str = "repaired-";

/// Writes the completed log to a new directory, which then replaces the damaged one. Whatever
/// happens in between, one of them is whole. Returns the new name of the damaged one.
fn replace(store: &Path, one: &Intact, missing: &[Record]) -> Result<PathBuf, RepairError> {
    let name = one.directory.file_name().unwrap_or_default().to_string_lossy();
    let replacement = store.join(format!("{REPLACEMENT}{name}"));
    let (mut journal, _) = Journal::open(&replacement, one.options).map_err(StorageError::Open)?;
    let explain = |error| StorageError::Write { directory: replacement.clone(), error };
    for record in one.log.records.iter().chain(missing) {
        let mut bytes = Vec::new();
        record.write(&mut bytes);
        journal.append(record.number, &bytes).map_err(explain)?;
        // The journal bounds what it holds in memory.
        if journal.buffered_bytes() > journal.options().buffered_bytes_max / 2 {
            journal.sync().map_err(explain)?;
        }
    }
    journal.sync().map_err(explain)?;
    drop(journal);
    let io = |source| RepairError::Io { path: one.directory.clone(), source };
    let mut names = (1..).map(|number| store.join(format!("damaged-{name}-{number}")));
    let copy = names.find(|path| !path.exists()).expect("the names do not end");
    rename(store, &one.directory, &copy).map_err(io)?;
    rename(store, &replacement, &one.directory).map_err(io)?;
    Ok(copy)
}

/// Renames a directory of the store, durably.
fn rename(store: &Path, from: &Path, to: &Path) -> std::io::Result<()> {
    fs::rename(from, to)?;
    fs::File::open(store)?.sync_all()
}
