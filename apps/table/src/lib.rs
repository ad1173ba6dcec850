//! A hash table in the registered memory of servers, which run no code of it.
//!
//! `application → [client] → requests of onepipe-memory → replicas`
//!
//! The table has shards, and each shard has one to several replicas: regions of different processes
//! with the same bytes, as all execute the same requests in the same order. A bucket is a version
//! and a list of nodes. A [`TableClient`] reads a list node by node, together with the version of
//! its bucket, from any replica. It changes a list by one request to all replicas, which compares
//! the version first. The reasons stand in `docs/design/memory.md`.
//!
//! [`RivalClient`] and [`Leader`] are what the table is compared with: memory without an order,
//! where a client waits between the writing of a node and its linking, and a leader that executes
//! insertions and replicates them.
//!
//! # Invariants
//! - All replicas of a shard have equal bytes after the same requests.
//! - The version of a bucket rises by one with each change of its list.
//! - A node in a list is in no client's pool of free nodes.

#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

mod client;
mod layout;
mod nodes;
mod outcome;
mod rivals;

pub use client::TableClient;
pub use layout::{Layout, Location};
pub use outcome::{Finished, OperationId, Outcome, TableError, TableOptions, TableStats};
pub use rivals::{Leader, RivalClient, RivalOptions, is_leader_message};
