//! Transactions of a connection: the block of `MULTI`, and what its replies become.

use onepipe_kv::{Command, Value};

use super::commands::ConnectionSpec;

/// A command between `MULTI` and `EXEC`.
#[derive(Debug)]
pub(super) enum Queued {
    /// The next data command of the transaction.
    Data,
    /// The command cannot be executed. The others are.
    Failed(String),
    /// The connection executes the command.
    Connection(&'static ConnectionSpec, Vec<Vec<u8>>),
}

/// The commands between `MULTI` and `EXEC`.
#[derive(Debug, Default)]
pub(super) struct Block {
    pub queued: Vec<Queued>,
    pub commands: Vec<Command>,
    pub bytes: usize,
    /// Whether a command was refused, so that `EXEC` executes nothing.
    pub is_aborted: bool,
}

/// A transaction that the backend executes.
#[derive(Debug)]
pub(super) enum InFlight {
    /// A number of pipelined commands, each with its own reply.
    Batch(usize),
    /// The commands between `MULTI` and `EXEC`, with one reply.
    Block(Vec<Queued>),
}

/// Commands that are gathered into one transaction.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub commands: Vec<Command>,
    pub bytes: usize,
}

/// Returns the number of replies that a block needs from the backend.
pub(super) fn data_count(queued: &[Queued]) -> usize {
    queued.iter().filter(|queued| matches!(queued, Queued::Data)).count()
}

/// Returns the error of a transaction that has fewer or more replies than commands.
pub(super) fn wrong_count(expected: usize, replies: &[Value]) -> String {
    format!("ERR the transaction of {expected} commands has {} replies", replies.len())
}
