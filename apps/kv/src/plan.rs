//! The plan of a transaction: its parts for the shards, and the replies from their results.

mod merge;

use alloc::format;
use alloc::string::String;
use alloc::vec;
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
    /// The reply is made from the result of one operation of this shard.
    Result { shard: u16, merge: Merge },
    /// The reply is made from the results of these shards, one of each operation, in this order.
    Results { shards: Vec<u16>, merge: Merge },
}

/// The results of a shard that no reply has used yet.
struct Results<'a> {
    shard: u16,
    reader: Reader<'a>,
    /// Whether the shard has left out the results of the last operations, as they were too long.
    is_truncated: bool,
}

/// The reply to a command if a shard has left out one of its results.
const TOO_LONG: &str = "ERR the reply exceeds 15 MiB on one shard: a command that writes was \
    executed; read less at once (GETRANGE, LRANGE, SCAN, fewer keys)";

/// Memory that is taken for a part at first, in bytes: most parts fit.
const PART_LEN: usize = 128;

impl Plan {
    /// Plans a transaction of all commands for a store of `shards` shards. A command that would
    /// need the value of one shard on another has an error as its reply; the others are executed.
    ///
    /// # Panics
    /// If `shards` is 0 or above [`crate::SLOTS`].
    pub fn new(commands: &[Command], shards: u16) -> Self {
        assert!((1..=crate::SLOTS).contains(&shards), "a store has 1 to {} shards", crate::SLOTS);
        let mut parts: Vec<(u16, Vec<u8>)> = Vec::new();
        let mut is_read_only = true;
        let mut replies = Vec::with_capacity(commands.len());
        let mut keys = Vec::new();
        for command in commands {
            let mut add = |shard, operation: &Operation| {
                is_read_only &= !operation.is_write();
                operation.put(part_of(&mut parts, shard));
            };
            let merge = command.merge;
            let assigned = match (&command.operations[..], command.target) {
                // Most commands are one operation, and need no list of shards.
                ([operation], Target::Keys) => shard_of_keys(command, operation, shards, &mut keys)
                    .map(|shard| {
                        add(shard, operation);
                        Pending::Result { shard, merge }
                    }),
                _ => assign(command, shards, &mut keys).map(|assigned| {
                    assigned.iter().for_each(|(shard, operation)| add(*shard, operation));
                    let shards = assigned.into_iter().map(|(shard, _)| shard).collect();
                    Pending::Results { shards, merge }
                }),
            };
            replies.push(assigned.unwrap_or_else(Pending::Failed));
        }
        Self { parts, is_read_only, replies, shards }
    }

    /// Returns the part of each shard concerned, in ascending order of the shards. There is none if
    /// no command can be executed.
    pub fn parts(&self) -> &[(u16, Vec<u8>)] {
        &self.parts
    }

    /// Takes the parts out of the plan, which then only makes replies.
    pub fn take_parts(&mut self) -> Vec<(u16, Vec<u8>)> {
        core::mem::take(&mut self.parts)
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
        let mut taken: Vec<Results<'_>> = Vec::with_capacity(results.len());
        let mut next = |shard: u16| {
            let index = taken.iter().position(|results| results.shard == shard);
            let index = match index {
                Some(index) => index,
                None => {
                    let of_shard = results.iter().find(|(other, _)| *other == shard);
                    let (_, bytes) = of_shard.ok_or(ReplyError::Missing(shard))?;
                    taken.push(Results::new(shard, bytes)?);
                    taken.len() - 1
                }
            };
            taken[index].next()
        };
        let mut replies = Vec::with_capacity(self.replies.len());
        for pending in &self.replies {
            replies.push(match pending {
                Pending::Failed(error) => Value::Error(error.clone()),
                Pending::Result { shard, merge } => match (next(*shard)?, merge) {
                    (None, _) => Value::Error(TOO_LONG.into()),
                    (Some(result), Merge::Only) => result,
                    (Some(result), merge) => self.merge(*merge, vec![result], *shard)?,
                },
                Pending::Results { shards, merge } => {
                    let results: Result<Vec<Option<Value>>, _> =
                        shards.iter().copied().map(&mut next).collect();
                    let results: Option<Vec<Value>> = results?.into_iter().collect();
                    let first = shards.first().copied().unwrap_or_default();
                    match results {
                        None => Value::Error(TOO_LONG.into()),
                        Some(results) => self.merge(*merge, results, first)?,
                    }
                }
            });
        }
        match taken.iter().find(|results| !results.reader.is_empty()) {
            Some(results) => Err(ReplyError::Mismatch(results.shard)),
            None => Ok(replies),
        }
    }

    fn merge(&self, merge: Merge, results: Vec<Value>, first: u16) -> Result<Value, ReplyError> {
        merge::merge(merge, results, self.shards).ok_or(ReplyError::Mismatch(first))
    }
}

/// Returns the part of a shard, which is empty before its first operation.
fn part_of(parts: &mut Vec<(u16, Vec<u8>)>, shard: u16) -> &mut Vec<u8> {
    let position = parts.binary_search_by_key(&shard, |(shard, _)| *shard);
    let position = position.unwrap_or_else(|position| {
        parts.insert(position, (shard, Vec::with_capacity(PART_LEN)));
        position
    });
    &mut parts[position].1
}

/// Returns the operations of a command, each with its shard.
fn assign<'a>(
    command: &'a Command,
    shards: u16,
    keys: &mut Vec<&'a [u8]>,
) -> Result<Vec<(u16, &'a Operation)>, String> {
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
            .map(|operation| Ok((shard_of_keys(command, operation, shards, keys)?, operation)))
            .collect(),
    }
}

/// Returns the only shard that has the keys of an operation. `keys` is work space.
fn shard_of_keys<'a>(
    command: &Command,
    operation: &'a Operation,
    shards: u16,
    keys: &mut Vec<&'a [u8]>,
) -> Result<u16, String> {
    keys.clear();
    operation.keys(keys);
    let Some((first, others)) = keys.split_first() else { return Ok(0) };
    let shard = shard_of(first, shards);
    match others.iter().all(|key| shard_of(key, shards) == shard) {
        true => Ok(shard),
        false => Err(format!(
            "ERR {} over keys of several shards would need the value of one shard on another, \
             which is not supported; use keys with the same {{hash tag}}",
            command.name().to_ascii_uppercase()
        )),
    }
}

impl<'a> Results<'a> {
    fn new(shard: u16, bytes: &'a [u8]) -> Result<Self, ReplyError> {
        let mut reader = Reader::new(bytes);
        let is_truncated = match reader.byte() {
            Some(EXECUTED) => false,
            Some(TRUNCATED) => true,
            Some(REFUSED) => return Err(ReplyError::Refused(shard)),
            _ => return Err(ReplyError::Mismatch(shard)),
        };
        Ok(Self { shard, reader, is_truncated })
    }

    /// Decodes the result of the next operation; `None` if it is left out.
    fn next(&mut self) -> Result<Option<Value>, ReplyError> {
        if self.is_truncated && self.reader.is_empty() {
            return Ok(None);
        }
        Value::take(&mut self.reader).map(Some).ok_or(ReplyError::Mismatch(self.shard))
    }
}

#[cfg(test)]
mod tests;
