//! Scheduled transfer: timeslots and paths for every packet, so that queues stay empty (Fastpass,
//! SIGCOMM 2014; design: arbiter.md).
//!
//! demand → `[allocate]` → timeslots → `[path]` → grants
//!
//! Time is cut into timeslots, each as long as one full packet takes on an endpoint's link. An
//! [`Allocator`] is told how many timeslots each pair of endpoints wants and gives them out in
//! batches of up to 64: in each timeslot every endpoint sends to one other at most, and receives
//! from one other at most. [`Paths`] then spreads each timeslot's packets over the links between
//! racks, so that these never queue either.
//!
//! ```
//! use onepipe_arbiter::{Allocator, Config, Policy, Timeslot};
//!
//! let config = Config { policy: Policy::MaxMinFair, ..Config::new(4) };
//! let mut allocator = Allocator::new(config).expect("four endpoints are possible");
//! allocator.request(0, 3, 2).expect("0 and 3 are endpoints");
//! allocator.request(1, 3, 1).expect("1 and 3 are endpoints");
//! let batch = allocator.next_batch();
//! assert_eq!(batch.start(), Timeslot(0));
//! let given: u32 = batch.grants().iter().map(|grant| grant.slots.count_ones()).sum();
//! assert_eq!(given, 3, "all of it fits into one batch");
//! assert_eq!(batch.grants()[0].slots & batch.grants()[1].slots, 0, "one at a time");
//! ```
//!
//! # Invariants
//! - Every timeslot is a matching: each endpoint at most once as source, once as destination.
//! - A batch is maximal: no pair that still wants timeslots has one left that is free at both ends.
//!   On several cores that is so of all flows: a pair that was given all and has asked for more has
//!   another one a fixed number of batches later.
//! - What was given is what was asked for, once the allocator is quiet: nothing is given twice,
//!   nothing is forgotten.
//! - Nobody starves: whoever waits longest is served first, but for the 64 times that it may give
//!   way, or at least every so often.
//! - In each timeslot no link between a rack and the core bears more packets than its share.
//! - Equal input gives equal output. No allocation after `new`, no float, no clock.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod allocate;
mod arbiter;
mod between;
mod client;
mod clock;
mod comm;
mod config;
mod demand;
mod desk;
mod failover;
mod fcp;
mod isolate;
mod pairs;
mod path;
mod pipeline;
mod ring;
mod timeslot;
mod transfer;

pub use allocate::{Allocator, Batch, Capacity, CapacityError, Grant, Ledger, Stage};
pub use arbiter::Arbiter;
pub use between::{Core, CorePaths, Routes};
pub use client::{Client, ClientConfig, ClientEvent, ClientStats, EnqueueError, Labels, Unlike};
pub use clock::SlotClock;
pub use comm::{Comm, CommConfig, CommStats, Demand};
pub use config::{Config, ConfigError, Policy, RequestError};
pub use demand::{Flow, Flows};
pub use desk::{
    ArbiterConfig, ArbiterError, ArbiterEvent, ArbiterStats, Command, Desk, Given, Ordered, Pace,
};
pub use failover::{FailoverConfig, Role};
pub use isolate::Fault;
pub use onepipe_wire::FcpParams;
pub use path::{Fabric, FabricError, PathStats, Paths, Tree, TreePaths};
pub use pipeline::{Allocated, Clerk, Hands, Order, Refused, Worker};
pub use timeslot::{BATCH_SLOTS_MAX, NOBODY, Schedule, Timeslot};
pub use transfer::{
    OBJECT_LEN_MIN, ObjectId, Transfer, TransferConfig, TransferError, TransferEvent, TransferStats,
};
