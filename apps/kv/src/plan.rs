//! The plan of a transaction: its parts for the shards, and the replies from their results.

mod merge;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::codec::{Field, Reader};
use crate::command::{Command, Merge, Target};
use crate::operation::Operation;
use crate::slot::shard_of;
use crate::store::{EXECUTED, REFUSED, TRUNCATED};
use crate::value::Value;

/// Why no replies can be made from the results of shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// The results of a shard are missing.
    #[error("shard {0} has no results")]
    Missing(u16),
    /// A shard could not parse its part.
    #[error("shard {0} refused its part of the transaction")]
    Refused(u16),
    /// The results of a shard cannot be parsed, or are not one for each operation.
    #[error("the results of shard {0} do not belong to the transaction")]
    Mismatch(u16),
}

/// What the shards execute for the commands of one transaction.
#[derive(Clone, Debug)]
pub struct Plan {
    parts: Vec<(u16, Vec<u8>)>,
    is_read_only: bool,
    replies: Vec<Pending>,
    shards: u16,
}

/// The reply to a command, before its transaction is executed.
#[derive(Clone, Debug)]
enum Pending {
    /// The command cannot be executed.
    Failed(String),
    /// The reply is made from the results of these shards, one of each operation, in this order.
    Results { shards: Vec<u16>, merge: Merge },
}

/// The results of a shard that no reply has used yet.
struct Results {
    values: VecDeque<Value>,
    /// Whether the shard has left out the results of the last operations, as they were too long.
    is_truncated: bool,
}

/// The reply to a command if a shard has left out one of its results.
const TOO_LONG: &str = "ERR the reply exceeds 15 MiB on one shard: a command that writes was \
    executed; read less at once (GETRANGE, LRANGE, SCAN, fewer keys)";

impl Plan {
    /// Plans a transaction of all commands for a store of `shards` shards. A command that would
    /// need the value of one shard on another has an error as its reply; the others are executed.
    ///
    /// # Panics
    /// If `shards` is 0 or above [`crate::SLOTS`].
    pub fn new(commands: &[Command], shards: u16) -> Self {
        assert!((1..=crate::SLOTS).contains(&shards), "a store has 1 to {} shards", crate::SLOTS);
        let mut parts: BTreeMap<u16, Vec<u8>> = BTreeMap::new();
        let mut is_read_only = true;
        let mut replies = Vec::with_capacity(commands.len());
        for command in commands {
            let placed = match assign(command, shards) {
                Ok(placed) => placed,
                Err(error) => {
                    replies.push(Pending::Failed(error));
                    continue;
                }
            };
            for (shard, operation) in &placed {
                is_read_only &= !operation.is_write();
                operation.put(parts.entry(*shard).or_default());
            }
            let shards = placed.into_iter().map(|(shard, _)| shard).collect();
            replies.push(Pending::Results { shards, merge: command.merge });
        }
        Self { parts: parts.into_iter().collect(), is_read_only, replies, shards }
    }

    /// Returns the part of each shard concerned, in ascending order of the shards. There is none if
    /// no command can be executed.
    pub fn parts(&self) -> &[(u16, Vec<u8>)] {
        &self.parts
    }

    /// Returns whether no part writes.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Returns the reply to each command. The shards of `results` may be in any order.
    ///
    /// # Errors
    /// [`ReplyError`] if the results are not those of the parts.
    pub fn replies(&self, results: &[(u16, &[u8])]) -> Result<Vec<Value>, ReplyError> {
        let mut values: BTreeMap<u16, Results> = BTreeMap::new();
        for (shard, _) in &self.parts {
            let of_shard = results.iter().find(|(other, _)| other == shard);
            let (_, result) = of_shard.ok_or(ReplyError::Missing(*shard))?;
            values.insert(*shard, results_of(*shard, result)?);
        }
        let mut next = |shard: u16| {
            let results = values.get_mut(&shard).ok_or(ReplyError::Mismatch(shard))?;
            match results.values.pop_front() {
                None if !results.is_truncated => Err(ReplyError::Mismatch(shard)),
                value => Ok(value),
            }
        };
        let mut replies = Vec::with_capacity(self.replies.len());
        for pending in &self.replies {
            replies.push(match pending {
                Pending::Failed(error) => Value::Error(error.clone()),
                Pending::Results { shards, merge } => {
                    let results: Result<Vec<Option<Value>>, _> =
                        shards.iter().copied().map(&mut next).collect();
                    let results: Option<Vec<Value>> = results?.into_iter().collect();
                    let first = shards.first().copied().unwrap_or_default();
                    match results {
                        None => Value::Error(TOO_LONG.into()),
                        Some(results) => merge::merge(*merge, results, self.shards)
                            .ok_or(ReplyError::Mismatch(first))?,
                    }
                }
            });
        }
        match values.iter().find(|(_, results)| !results.values.is_empty()) {
            Some((shard, _)) => Err(ReplyError::Mismatch(*shard)),
            None => Ok(replies),
        }
    }
}

/// Returns the operations of a command, each with its shard.
fn assign(command: &Command, shards: u16) -> Result<Vec<(u16, &Operation)>, String> {
    let operations = command.operations.iter();
    match command.target {
        Target::EveryShard => {
            let every = |operation| (0..shards).map(move |shard| (shard, operation));
            Ok(operations.flat_map(every).collect())
        }
        Target::Shard(shard) => {
            let shard = u16::try_from(shard).ok().filter(|shard| *shard < shards);
            let shard = shard.ok_or_else(|| String::from("ERR invalid cursor"))?;
            Ok(operations.map(|operation| (shard, operation)).collect())
        }
        Target::Keys => operations
            .map(|operation| Ok((shard_of_keys(command, operation, shards)?, operation)))
            .collect(),
    }
}

/// Returns the only shard that has the keys of an operation.
fn shard_of_keys(command: &Command, operation: &Operation, shards: u16) -> Result<u16, String> {
    let keys = operation.named_keys();
    let shard = keys.first().map_or(0, |key| shard_of(key, shards));
    match keys.iter().all(|key| shard_of(key, shards) == shard) {
        true => Ok(shard),
        false => Err(format!(
            "ERR {} over keys of several shards would need the value of one shard on another, \
             which is not supported; use keys with the same {{hash tag}}",
            command.name().to_ascii_uppercase()
        )),
    }
}

/// Decodes the results of a shard, one for each operation of its part unless they are truncated.
fn results_of(shard: u16, bytes: &[u8]) -> Result<Results, ReplyError> {
    let mismatch = ReplyError::Mismatch(shard);
    let mut reader = Reader::new(bytes);
    let is_truncated = match reader.byte() {
        Some(EXECUTED) => false,
        Some(TRUNCATED) => true,
        Some(REFUSED) => return Err(ReplyError::Refused(shard)),
        _ => return Err(mismatch),
    };
    let mut values = VecDeque::new();
    while !reader.is_empty() {
        values.push_back(Value::take(&mut reader).ok_or(mismatch)?);
    }
    Ok(Results { values, is_truncated })
}

#[cfg(test)]
mod tests;
