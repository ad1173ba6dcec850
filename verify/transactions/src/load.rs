//! What the clients of a cluster do.

use onepipe_base::ProcessId;
use onepipe_transaction::{Committed, Kind, TransactionError};

/// One of the transactions that a client has in flight at a time. A process that restarts has
/// another session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane {
    /// The process of the client.
    pub process: ProcessId,
    /// The client's session.
    pub session: u64,
    /// Index among the lanes of the client.
    pub index: u32,
}

/// What a lane does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// It submits a transaction, given as for [`onepipe_transaction::Client::submit`].
    Submit(Kind, Vec<(u16, Vec<u8>)>),
    /// It asks again after this time, in ns.
    Wait(u64),
    /// It has ended.
    Stop,
}

/// A transaction that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// Who submitted it.
    pub lane: Lane,
    /// Virtual time of the submission, in ns.
    pub started_ns: u64,
    /// Virtual time of the outcome, in ns.
    pub at_ns: u64,
    /// What happened.
    pub outcome: Result<Committed, TransactionError>,
}

/// The initial state of the shards, and what the clients do. One value serves all processes.
pub trait Load<S> {
    /// Returns the initial state of a shard.
    fn state(&mut self, shard: u16) -> S;

    /// Returns what a lane without a transaction does at a virtual time in ns.
    fn next(&mut self, at_ns: u64, lane: Lane) -> Next;

    /// Called when a transaction has ended.
    fn done(&mut self, done: Done);
}
