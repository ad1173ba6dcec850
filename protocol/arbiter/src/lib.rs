//! Scheduled transfer: a central arbiter assigns a timeslot and a path to every packet, so that
//! queues in the network stay empty (Fastpass, SIGCOMM 2014; `docs/design/arbiter.md`).
//!
//! demand → `[allocate]` → timeslots → `[path]` → grants
//!
//! A timeslot is the time in which an endpoint's link carries one full packet. An [`Allocator`]
//! takes the number of timeslots that each pair of endpoints requests, and grants them in batches
//! of up to 64 timeslots. In each timeslot an endpoint sends to at most one other endpoint, and
//! receives from at most one. [`Paths`] then spreads the packets of each timeslot over the links
//! between racks, so that those do not queue either.
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
//! let granted: u32 = batch.grants().iter().map(|grant| grant.slots.count_ones()).sum();
//! assert_eq!(granted, 3, "all demand fits into one batch");
//! assert_eq!(batch.grants()[0].slots & batch.grants()[1].slots, 0, "0 and 1 alternate");
//! ```
//!
//! # Invariants
//! - Every timeslot is a matching: each endpoint is at most once a source, and at most once a
//!   destination.
//! - A batch is maximal: no pair with unmet demand has a timeslot left that is free at both ends.
//!   With several workers this holds for the flows in the pipeline; a pair whose flow is drained
//!   and that has requested more gets its next flow a fixed number of batches later.
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
mod arbiter;
mod client;
mod clock;
mod comm;
mod config;
mod control;
mod core_paths;
mod failover;
mod fcp;
mod flow;
mod index_queue;
mod pairs;
mod path;
mod pipeline;
mod ring;
mod timeslot;
mod transfer;

pub use allocate::{Allocator, Batch, Capacity, CapacityError, DemandTable, Stage};
pub use arbiter::Arbiter;
pub use client::{
    Client, ClientConfig, ClientEvent, ClientStats, EnqueueError, Labels, ParamsMismatch,
};
pub use clock::SlotClock;
pub use comm::{Comm, CommConfig, CommStats, Demand};
pub use config::{Config, ConfigError, Policy, RequestError};
pub use control::{
    ArbiterConfig, ArbiterError, ArbiterEvent, ArbiterStats, BatchScheduler, BatchSummary, Command,
    ControlPlane, ScheduledBatch,
};
pub use core_paths::{Core, CorePaths};
pub use failover::{FailoverConfig, Role};
pub use fcp::SessionTimes;
pub use flow::{Flow, Flows};
pub use onepipe_isolation::Fault;
pub use onepipe_wire::FcpParams;
pub use path::{Fabric, FabricError, PathStats, Paths, Routes, Tree, TreePaths};
pub use pipeline::{
    AllocatedBatch, Dispatcher, RefusedDemand, Worker, WorkerCommand, WorkerQueues,
};
pub use timeslot::{BATCH_SLOTS_MAX, Grant, NO_DESTINATION, Schedule, Timeslot};
pub use transfer::{
    OBJECT_LEN_MIN, ObjectId, Transfer, TransferConfig, TransferError, TransferEvent, TransferStats,
};
