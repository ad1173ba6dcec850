//! Replaces damaged logs by ones that are completed from those of other replicas and shards.
//!
//! Records of a log have consecutive numbers, so the intact records on both sides of the damage say
//! how many are missing in between. Each record holds its whole transaction, and the total order
//! says which records of other logs belong there. Where other logs have snapshots instead, the
//! snapshot and the records of another replica of the shard replace the log.

mod intact;

use std::path::{Path, PathBuf};

use onepipe::ProcessId;
use onepipe_journal::Journal;
use onepipe_transaction::{Log, LogSummary, Record, Role, Roles, complete};
use thiserror::Error;

use super::error::StorageError;
use super::exchange::{rename, replacement};
use super::recovery::{append, check_role};
use intact::{Intact, read};

/// A log that was replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairedLog {
    /// The directory of the replica.
    pub directory: PathBuf,
    /// The damage: the file, and the offset in it.
    pub damage: String,
    /// The directory of another replica of the shard whose snapshot and records the log has now,
    /// as those of other logs do not suffice.
    pub copied_from: Option<PathBuf>,
    /// Number of writes that were read from the log, before the damage, or from the copied one:
    /// those of its snapshot and the records after it.
    pub retained: u64,
    /// Number of records that were added behind them, from other logs or behind the damage.
    pub added: usize,
    /// Number of records that no log holds. `None` if it is not known, as others have dropped
    /// theirs.
    pub lost: Option<u64>,
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
         may have been acknowledged: they took place after {after}{before} (ns since 1970); put \
         back a copy of this directory, or accept the loss with --accept-loss",
        before = before.map(|before| format!(" and before {before}")).unwrap_or_default()
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
        /// Timestamp of the last intact record behind them, in ns, if there is one.
        before: Option<u64>,
    },
    /// The log ends before what others have replaced by snapshots.
    #[error(
        "{damage}; writes after record {last}, which took place from {after} to {until} (ns since \
         1970), may have been acknowledged, and other logs have replaced theirs by snapshots; put \
         back a copy of this directory, or accept the loss with --accept-loss"
    )]
    Overtaken {
        /// The damage.
        damage: String,
        /// Number of the last intact record.
        last: u64,
        /// Timestamp of that record, in ns.
        after: u64,
        /// Timestamp of the last write in a snapshot, in ns.
        until: u64,
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

/// Repairs the store in `directory`, which no program uses: each damaged log is replaced by what
/// precedes the damage, and what other logs hold after that, or by the log of another replica of
/// its shard, if other logs do not reach back so far. The damaged one remains as `damaged-…`.
/// Returns what was replaced; nothing if all logs are intact.
///
/// # Errors
/// [`RepairError`]; [`RepairError::Loss`] and [`RepairError::Overtaken`] unless `accepts_loss`.
pub fn repair(directory: &Path, accepts_loss: bool) -> Result<Vec<RepairedLog>, RepairError> {
    let mut all = read(directory)?;
    mark_outdated(&mut all)?;
    let all = all;
    // The log of each replica first; what is behind damage, or before a snapshot, completes others.
    let of_others = all.iter().flat_map(|one| [&one.behind, &one.before]);
    let logs: Vec<&Log> = all.iter().map(|one| &one.log).chain(of_others).collect();
    let losses: Vec<Option<RepairError>> = all.iter().map(|one| one.loss(&logs)).collect();
    let mut plans = Vec::new();
    for ((one, loss), at) in all.iter().zip(&losses).zip(0..) {
        let Some(damage) = &one.damage else { continue };
        let can_replace = |other: &usize| {
            *other != at && all[*other].log.shard == one.log.shard && losses[*other].is_none()
        };
        let source = loss.as_ref().and_then(|_| {
            // One that is not damaged has all that was acknowledged, so it comes first.
            (0..all.len()).filter(can_replace).min_by_key(|other| all[*other].damage.is_some())
        });
        let lost = match (loss, source) {
            (None, _) | (_, Some(_)) => Some(0),
            (Some(RepairError::Loss { lost, .. }), None) => Some(*lost),
            (Some(_), None) => None,
        };
        plans.push((one, damage, source, lost, at));
    }
    let refused = plans.iter().find(|(.., lost, _)| *lost != Some(0)).map(|(.., at)| *at);
    if let Some(refused) = refused.filter(|_| !accepts_loss)
        && let Some(loss) = losses.into_iter().nth(refused).flatten()
    {
        return Err(loss);
    }
    let missing = complete(&logs);
    let mut repaired = Vec::new();
    // A snapshot is copied before its own directory is replaced: that has the same afterwards.
    for (one, damage, source, lost, at) in plans {
        let from = source.map_or(one, |source| &all[source]);
        let missing = &missing[source.unwrap_or(at)];
        let copy = replace(directory, one, from, missing)?;
        repaired.push(RepairedLog {
            directory: one.directory.clone(),
            damage: damage.clone(),
            copied_from: source.map(|source| all[source].directory.clone()),
            retained: from.end().map_or(0, |(number, _)| number),
            added: missing.len(),
            lost,
            copy,
        });
    }
    Ok(repaired)
}

/// Marks as damaged the logs that cannot be completed as they are, and removes what is void.
fn mark_outdated(all: &mut [Intact]) -> Result<(), StorageError> {
    let undamaged = (0..).map(ProcessId).zip(&*all).filter(|(_, one)| one.damage.is_none());
    let summaries = undamaged.map(|(process, one)| (process, LogSummary::of(&one.log))).collect();
    let roles = Roles::assign(&summaries, 0)?.roles;
    for (process, role) in roles {
        let one = &mut all[process.0 as usize];
        one.damage = check_role(&one.directory, &one.log, role).err().map(|why| why.to_string());
        if let Role::Complete { before: Some(before) } = role {
            one.log.records.retain(|record| record.at < before);
        }
    }
    Ok(())
}

/// Writes the completed log of `from` to a new directory, which then replaces the damaged one of
/// `one`. Whatever happens in between, one of them is whole. Returns the new name of the damaged
/// one.
fn replace(
    store: &Path,
    one: &Intact,
    from: &Intact,
    missing: &[Record],
) -> Result<PathBuf, RepairError> {
    let name = one.directory.file_name().unwrap_or_default().to_string_lossy();
    let replacement = replacement(store, &name);
    let (mut journal, _) = Journal::open(&replacement, one.options).map_err(StorageError::Open)?;
    let explain = |error| StorageError::Write { directory: replacement.clone(), error };
    if let Some(snapshot) = from.read_snapshot()? {
        journal.snapshot(snapshot.position, &snapshot.bytes).map_err(explain)?;
    }
    append(&mut journal, from.log.records.iter().chain(missing)).map_err(explain)?;
    drop(journal);
    let io = |source| RepairError::Io { path: one.directory.clone(), source };
    let mut names = (1..).map(|number| store.join(format!("damaged-{name}-{number}")));
    let copy = names.find(|path| !path.exists()).expect("the names do not end");
    rename(store, &one.directory, &copy).map_err(io)?;
    rename(store, &replacement, &one.directory).map_err(io)?;
    Ok(copy)
}
