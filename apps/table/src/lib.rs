//! A hash table in the registered memory of servers, which run no code of it.
//!
//! `application → [client] → requests of onepipe-memory → replicas`
//!
//! The table has shards, and each shard has one to several replicas: regions of different processes
//! with the same bytes, as all execute the same requests in the same order. A bucket is a version
//! and a list of nodes. A [`TableClient`] reads a list node by node, together with the version of
//! its bucket, from any replica. It changes a list by one request to all replicas, which compares
//! the version first. Where a shard has one replica, all requests are executed in the order of that
//! owner alone, without the wait for a commit. The reasons stand in `docs/design/memory.md`.
//!
//! [`RivalClient`] and [`Leader`] are what the table is compared with: memory without an order,
//! where a client waits between the writing of a node and its linking, and a leader that executes
//! insertions and replicates them.
//!
//! ```
//! use onepipe_base::{Mono, ProcessId, Timestamp};
//! use onepipe_memory::{MemoryOwner, OwnerOptions, Region, RegionId, Rights};
//! use onepipe_table::{Layout, Outcome, TableClient, TableOptions};
//!
//! let layout = Layout { shards: 1, buckets: 64, nodes: 100, value_len: 5 };
//! // The server registers the region of the only shard, and does nothing else.
//! let mut server = MemoryOwner::new(OwnerOptions::default());
//! let region = Region::new(layout.empty_shard(), Rights::all());
//! server.register(RegionId(0), region).expect("the first one");
//!
//! let replicas = vec![vec![ProcessId(0)]];
//! let mut client = TableClient::new(1, layout, replicas, TableOptions::default());
//! client.insert(7, b"seven").expect("five bytes");
//! let mut time_ns = 1_000;
//! let inserted = loop {
//!     // The fabric: messages with ascending timestamps, below the barrier that follows.
//!     let now = Mono::from_ns(time_ns);
//!     while let Some(request) = client.poll_scattering(now) {
//!         time_ns += 1;
//!         let at = Timestamp::from_ns(time_ns);
//!         server.on_message(request.is_reliable, at, ProcessId(1), &request.messages[0].1);
//!         server.on_barrier(Timestamp::from_ns(time_ns + 1));
//!     }
//!     while let Some(reply) = server.poll_reply() {
//!         client.on_message(now, ProcessId(0), &reply.payload);
//!     }
//!     if let Some(finished) = client.poll_finished() {
//!         break finished.outcome;
//!     }
//! };
//! assert_eq!(inserted, Ok(Outcome::Inserted));
//! ```
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
mod requests;
mod rivals;

pub use client::TableClient;
pub use layout::{Layout, Location};
pub use outcome::{Finished, OperationId, Outcome, TableError, TableOptions, TableStats};
pub use requests::Requests;
pub use rivals::{Leader, RivalClient, RivalOptions, is_leader_message};
