//! What the clients of a cluster do.

use onepipe_table::{Outcome, TableError};
use onepipe_verify_transactions::Terminal;

/// A call of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Looks the key up.
    LookUp,
    /// Inserts the key with this value.
    Insert(Vec<u8>),
    /// Replaces the value.
    Update(Vec<u8>),
    /// Removes the key.
    Delete,
}

/// What a terminal does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// The terminal calls the table, for a key.
    Call(u64, Command),
    /// The terminal asks again after this time, in ns.
    Wait(u64),
    /// The terminal has ended.
    Stop,
}

/// A call that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The terminal.
    pub terminal: Terminal,
    /// Virtual time of the call, in ns.
    pub started_ns: u64,
    /// Virtual time of the outcome, in ns.
    pub at_ns: u64,
    /// What happened.
    pub outcome: Result<Outcome, TableError>,
}

/// What is in the table at first, and what the clients do. One value serves all processes.
pub trait Load {
    /// Returns the keys and values of a shard at first.
    fn content(&mut self, shard: u16) -> Vec<(u64, Vec<u8>)>;

    /// Returns what a terminal without a call does at a virtual time in ns.
    fn next(&mut self, at_ns: u64, terminal: Terminal) -> Next;

    /// Handles the end of a call.
    fn done(&mut self, done: Done);
}
