//! The commands of clients, and the operations of shards that each becomes.

mod arguments;
mod error;
mod hashes;
mod keys;
mod lists;
mod sets;
mod sorted_sets;
mod strings;

use alloc::vec;
use alloc::vec::Vec;

use crate::operation::{Combination, Operation};
use arguments::Arguments;
pub use error::CommandError;

/// A command that has been parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    pub(crate) name: &'static str,
    pub(crate) operations: Vec<Operation>,
    pub(crate) target: Target,
    pub(crate) merge: Merge,
}

/// The shards that execute the operations of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Each operation is executed by the shard of its keys.
    Keys,
    /// All shards execute the only operation.
    EveryShard,
    /// One shard executes the only operation.
    Shard(u64),
}

/// How the results of the operations become the reply to the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Merge {
    /// The reply is the result of the only operation.
    Only,
    /// The reply is OK.
    Ok,
    /// The reply is the array of all results.
    Array,
    /// The reply is the sum of all results.
    Sum,
    /// The reply is the array of the elements of all results.
    Concatenate,
    /// The reply is a combination of the sets.
    Combine(Combination),
    /// The reply is the number of common members, at most `limit` unless that is 0.
    CountCommon { limit: u64 },
    /// The reply of `SCAN` after a step in the shard.
    Scan { shard: u64 },
}

/// Whether a command may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The command only reads.
    Read,
    /// The command may write.
    Write,
}

/// The positions of keys among the arguments of a command, as the reply to `COMMAND` has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyPositions {
    /// First key; 0 if the command has no keys at fixed positions.
    pub first: i64,
    /// Last key; −1 is the last argument.
    pub last: i64,
    /// Distance between keys.
    pub step: i64,
}

const NONE: KeyPositions = KeyPositions { first: 0, last: 0, step: 0 };
const ONE: KeyPositions = KeyPositions { first: 1, last: 1, step: 1 };
const TWO: KeyPositions = KeyPositions { first: 1, last: 2, step: 1 };
const ALL: KeyPositions = KeyPositions { first: 1, last: -1, step: 1 };
const EVERY_SECOND: KeyPositions = KeyPositions { first: 1, last: -1, step: 2 };

/// A command that the store understands.
#[derive(Debug)]
pub struct Spec {
    /// Name in lower case.
    pub name: &'static str,
    /// Number of arguments with the name; if negative, the least number.
    pub arity: i64,
    /// Whether the command may write.
    pub access: Access,
    /// Where its keys are.
    pub keys: KeyPositions,
    parse: Parse,
}

/// Parses the arguments after the name.
type Parse = fn(Arguments<'_>) -> Result<Command, CommandError>;

const fn read(name: &'static str, arity: i64, keys: KeyPositions, parse: Parse) -> Spec {
    Spec { name, arity, access: Access::Read, keys, parse }
}

const fn write(name: &'static str, arity: i64, keys: KeyPositions, parse: Parse) -> Spec {
    Spec { name, arity, access: Access::Write, keys, parse }
}

const TABLES: [&[Spec]; 6] = [
    strings::COMMANDS,
    keys::COMMANDS,
    hashes::COMMANDS,
    lists::COMMANDS,
    sets::COMMANDS,
    sorted_sets::COMMANDS,
];

impl Command {
    /// Returns all commands that the store understands. Those of a connection (`PING`, `MULTI`, …)
    /// are not among them.
    pub fn specs() -> impl Iterator<Item = &'static Spec> {
        TABLES.into_iter().flatten()
    }

    /// Parses a command. The first argument is its name, in upper or lower case.
    ///
    /// # Errors
    /// [`CommandError`], which is displayed in the words of Redis.
    pub fn parse(arguments: &[Vec<u8>]) -> Result<Self, CommandError> {
        let unknown = || CommandError::unknown(arguments);
        let (name, rest) = arguments.split_first().ok_or_else(unknown)?;
        let spec = Self::specs()
            .find(|spec| name.eq_ignore_ascii_case(spec.name.as_bytes()))
            .ok_or_else(unknown)?;
        let count = i64::try_from(arguments.len()).unwrap_or(i64::MAX);
        let has_arity = match spec.arity {
            0.. => count == spec.arity,
            _ => count >= -spec.arity,
        };
        match has_arity {
            true => (spec.parse)(Arguments::new(spec.name, rest)),
            false => Err(CommandError::Arity(spec.name)),
        }
    }

    /// Returns the name, in lower case.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns whether the command changes nothing.
    pub fn is_read_only(&self) -> bool {
        !self.operations.iter().any(Operation::is_write)
    }

    fn of(name: &'static str, operations: Vec<Operation>, merge: Merge) -> Self {
        Self { name, operations, target: Target::Keys, merge }
    }

    /// Returns a command that is one operation.
    fn one(name: &'static str, operation: Operation) -> Self {
        Self::of(name, vec![operation], Merge::Only)
    }

    /// Returns a command that all shards execute.
    fn everywhere(name: &'static str, operation: Operation, merge: Merge) -> Self {
        Self { target: Target::EveryShard, ..Self::of(name, vec![operation], merge) }
    }
}

#[cfg(test)]
mod tests;
