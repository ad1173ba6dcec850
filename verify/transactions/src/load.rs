//! What the clients of a cluster do.

use onepipe_base::ProcessId;
use onepipe_transaction::{Committed, Kind, TransactionError};

/// A source of transactions, one at a time; a client has several. A process that restarts has
/// another session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Terminal {
    /// The process of the client.
    pub process: ProcessId,
    /// The client's session.
    pub session: u64,
    /// Index among the terminals of the client.
    pub index: u32,
}

/// What a terminal does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// The terminal submits a transaction, given as for [`onepipe_transaction::Client::submit`].
    Submit(Kind, Vec<(u16, Vec<u8>)>),
    /// The terminal asks again after this time, in ns.
    Wait(u64),
    /// The terminal has ended.
    Stop,
}

/// A transaction that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The terminal that submitted the transaction.
    pub terminal: Terminal,
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

    /// Returns what a terminal without a transaction does at a virtual time in ns.
    fn next(&mut self, at_ns: u64, terminal: Terminal) -> Next;

    /// Handles the end of a transaction.
    fn done(&mut self, done: Done);
}
