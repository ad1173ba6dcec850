//! What a front executes transactions with.

use std::sync::Arc;

use onepipe_kv::{Command, Value};
use thiserror::Error;

/// Why a transaction has no replies.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BackendError {
    /// No replica of a shard is up.
    #[error("no replica of shard {0} is up: start one of them again")]
    Unavailable(u16),
    /// All replicas have started again. The transaction writes, and may have been executed.
    #[error("the store has started again: the transaction may have been executed or not")]
    Restarted,
    /// The node has too many unfinished transactions. None was begun.
    #[error("{0} transactions are unfinished: try again later")]
    Busy(usize),
    /// The disk of a replica does not take what is written, for the reason given. The transaction
    /// writes, and was not executed.
    #[error("the disk of a replica takes no writes: {0}")]
    Disk(Arc<str>),
    /// The transaction, sent to all replicas of its shards, exceeds what the fabric can send. No
    /// part was executed.
    #[error("the transaction is too large to be sent to all replicas: split it")]
    TooLarge,
    /// The node has ended, for the reason given. The transaction may have been executed.
    #[error("this node has ended: {0}")]
    Ended(Arc<str>),
    /// The shards have answered with what does not belong to the transaction.
    #[error("the results of the shards cannot be used: {0}")]
    Results(String),
}

/// The replies to the commands of a transaction, one for each.
pub type Replies = Result<Vec<Value>, BackendError>;

/// Called once with the replies.
pub type OnReplies = Box<dyn FnOnce(Replies) + Send>;

/// The encoded results of a transaction: those of each shard concerned, in their ascending order.
pub type Results = Result<Vec<(u16, Vec<u8>)>, BackendError>;

/// Called once with the results.
pub type OnResults = Box<dyn FnOnce(Results) + Send>;

/// Executes transactions. A front calls it from any thread.
pub trait Backend: Send + Sync {
    /// Begins a transaction of all commands: they are executed at one timestamp, on all shards that
    /// they concern. `on_replies` is called once, from another thread or from this one. Never
    /// blocks. Transactions that were begun before this one is finished may be executed after it: a
    /// front waits for the replies of a connection's last transaction where their order matters.
    fn begin(&self, commands: Vec<Command>, on_replies: OnReplies);

    /// Returns the number of shards.
    fn shards(&self) -> u16;

    /// Returns lines for `INFO`, as `name:value`, in a section of its own.
    fn info(&self) -> Vec<(&'static str, String)>;
}
