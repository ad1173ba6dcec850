//! What becomes of a transaction.

use alloc::vec::Vec;

use onepipe_base::Timestamp;
use thiserror::Error;

use crate::client::TransactionId;
use crate::request::PARTS_MAX;

/// A finished transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The transaction.
    pub transaction: TransactionId,
    /// What happened.
    pub outcome: Result<Committed, TransactionError>,
}

/// A transaction that took place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// When: the timestamp of a write; for a read, one at which all its results are exact.
    pub at: Timestamp,
    /// The results of each shard, in ascending order of the shards.
    pub results: Vec<(u16, Vec<u8>)>,
    /// Number of attempts, at least 1.
    pub attempts: u32,
}

/// Why a transaction did not take place, or may not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum TransactionError {
    /// No replica of a shard is up or answers. A write that was sent before may have taken place.
    #[error("no replica of shard {0} is up: start one of them again")]
    Unavailable(u16),
    /// All replicas have started again since the write was sent. The write may have taken place.
    #[error("the store has started again: the write may have taken place or not")]
    Restarted,
    /// A replica has refused the write: [`Answer::Refused`](crate::Answer::Refused).
    #[error(
        "shard {0} refuses the write: this client has sent too many others since its oldest \
         unfinished one"
    )]
    Refused(u16),
    /// A message of the transaction, or all of its messages together, exceed what the fabric can
    /// send. Nothing was sent, unless an earlier attempt went to fewer replicas: its write may have
    /// taken place.
    #[error("its messages to all replicas exceed the limits of the fabric: split the transaction")]
    TooLarge,
}

/// Why a transaction cannot be submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum SubmitError {
    /// Too many transactions are unfinished.
    #[error("{0} transactions are unfinished, as many as this client may have: wait for one")]
    Full(usize),
    /// The transaction has no parts.
    #[error("a transaction needs at least one part")]
    Empty,
    /// The transaction has more parts than replicas accept.
    #[error("a transaction has at most {PARTS_MAX} parts, not {0}: split it")]
    TooManyParts(usize),
    /// The parts are not in ascending order of their shards, or there is no such shard.
    #[error(
        "part {0} is not for a shard above that of the part before it, or there is no such shard"
    )]
    Shard(usize),
}
