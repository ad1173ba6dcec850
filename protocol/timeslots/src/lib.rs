//! Allocates timeslots to pairs of endpoints, and paths to the packets of each timeslot (Fastpass,
//! SIGCOMM 2014; `docs/design/arbiter.md`).
//!
//! demand → `[allocate]` → timeslots → `[path]` → paths
//!
//! A timeslot is the time in which an endpoint's link carries one full packet. An [`Allocator`]
//! takes the number of timeslots that each pair of endpoints requests, and grants them in batches
//! of up to 64 timeslots. In each timeslot an endpoint sends to at most one other endpoint, and
//! receives from at most one. [`Paths`] then spreads the packets of each timeslot over the links
//! between racks, so that those do not queue either. `onepipe_arbiter` carries requests and grants.
//!
//! ```
//! use onepipe_timeslots::{Allocator, Config, Policy, Timeslot};
//!
//! let config = Config { policy: Policy::MaxMinFair, ..Config::new(4) };
//! let mut allocator = Allocator::new(config).expect("four endpoints are possible");
//! allocator.request(0, 3, 2).expect("0 and 3 are endpoints");
//! allocator.request(1, 3, 1).expect("1 and 3 are endpoints");
//! let batch = allocator.next_batch();
//! assert_eq!(batch.start(), Timeslot(0));
//! let granted: u32 = batch.grants().iter().map(|grant| grant.slots.count_ones()).sum();
//! assert_eq!(granted, 3, "all demand fits into one batch");
//! assert_eq!(batch.grants()[0].slots & batch.grants()[1].slots, 0, "0 and 1 alternate");
//! ```
//!
//! # Invariants
//! - Every timeslot is a matching: each endpoint is at most once a source, and at most once a
//!   destination.
//! - A batch is maximal: no pair with unmet demand has a timeslot left that is free at both ends.
//!   With several [`Stage`]s this holds for the flows in them; a pair whose flow is drained and
//!   that has requested more gets its next flow a fixed number of batches later.
//! - Without new requests the grants converge to the requests: no timeslot is granted twice, and
//!   no request is lost.
//! - No pair starves. Under max–min fairness the pair served least recently comes first, except
//!   that it yields up to 64 times; under shortest-first a pair becomes urgent with age.
//! - In each timeslot no link between a rack and the core carries more packets than its share.
//! - Deterministic: equal input gives equal output. No heap allocation after `new`, no floating
//!   point, no clock.

#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

mod allocate;
mod config;
mod flow;
mod pairs;
mod path;
mod timeslot;

pub use allocate::{Allocator, Batch, Capacity, CapacityError, DemandTable, Grants, Stage};
pub use config::{Config, ConfigError, Policy, RequestError, check_setting};
pub use flow::{Flow, Flows};
pub use path::{Fabric, FabricError, PathStats, Paths, Routes, Tree, TreePaths};
pub use timeslot::{BATCH_SLOTS_MAX, Grant, NO_DESTINATION, Schedule, Timeslot};
