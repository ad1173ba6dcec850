//! Other protocols of transactions over shards, for comparison with `onepipe-transaction`.
//!
//! `client → [message] → server → [log entry] → backups`
//!
//! All messages are unordered: they may be lost, duplicated and reordered. A [`Client`] coordinates
//! its transactions in *rounds*: in each it sends a request to the servers concerned, repeats it
//! until all have answered, and goes on, or aborts and retries later. A [`Server`] executes each
//! request once. It holds a replica of a shard; the first replica is the primary, which replicates
//! what it executes to the others, the backups, by a log with consecutive indices.
//!
//! | protocol | only reads | only writes | reads and writes |
//! |---|---|---|---|
//! | [`Protocol::NonTx`] | execute | execute | execute |
//! | [`Protocol::Farm`] | read | lock, commit, unlock | read, lock, validate, commit |
//! | [`Protocol::TwoPhaseLocking`] | lock, unlock | lock, prepare, commit | lock, prepare, commit |
//! | [`Protocol::Optimistic`] | read, validate | read, prepare, commit | read, prepare, commit |
//!
//! - NonTX has no concurrency control: each replica executes what it receives at once. Its rate is
//!   the upper bound. It is not serializable, and its replicas differ.
//! - FaRM as the evaluation of 1Pipe (SIGCOMM 2021, section 7.3.1) describes it. Read-only
//!   transactions read in one round, which is not serializable if they concern several servers: one
//!   may be read before a transaction and the other after it. [`FarmReads::Validated`] adds the
//!   validation that the original has.
//! - Two-phase locking locks rows for reading or writing, all of a part at once.
//! - Optimistic concurrency control reads versions; to prepare, it locks as two-phase locking does,
//!   if no version has changed.
//!
//! A transaction that needs a row locked by another one has a conflict, and aborts: none waits for
//! another, so there are no deadlocks. In two-phase commit a primary replicates the preparation
//! before it votes.
//!
//! The application implements [`Keyed`]: the rows that a part uses.
//!
//! # Invariants
//! - A request is executed once, and its reply repeated.
//! - A transaction that has ended holds no lock.
//! - All replicas execute the parts of a shard in the order of its log (except NonTX).
//! - Servers are assumed not to fail.

#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

mod backup;
mod client;
mod keyed;
mod locks;
mod log;
mod message;
mod open_transaction;
mod participant;
mod protocol;
mod server;
mod timer;
mod tpcc;

pub use client::{Client, ClientOptions, ClientStats, Finished};
pub use keyed::{KeyUse, Keyed};
pub use message::{OutgoingMessage, is_reply};
pub use open_transaction::Part;
pub use protocol::{FarmReads, Protocol};
pub use server::{Server, ServerStats};
