//! Scheduled transfer: a central arbiter assigns a timeslot and a path to every packet, so that
//! queues in the network stay empty (Fastpass, SIGCOMM 2014; `docs/design/arbiter.md`).
//!
//! requests → `[comm]` → demand → `onepipe_timeslots` → timeslots and paths → `[comm]` → grants
//!
//! A [`Client`] holds the packets of an endpoint until their timeslots begin, and requests
//! timeslots for them. An [`Arbiter`] serves all clients: its [`ControlPlane`] keeps a session with
//! each endpoint, elects the primary arbiter, and commands an [`Allocator`] on the same core, or a
//! [`Dispatcher`] and [`Worker`]s on several. A [`Transfer`] sends objects of any length through a
//! client.
//!
//! ```
//! use onepipe_arbiter::{Arbiter, ArbiterConfig, Client, ClientConfig, Core};
//! use onepipe_base::{Machine, Mono, Now, ProcessId, Timestamp};
//!
//! // Endpoints 0 to 3 in two racks with two paths; process 4 is the arbiter.
//! let config = ArbiterConfig::new(ProcessId(4), Core::racks(4, 2, 2), 1_250);
//! let mut arbiter = Arbiter::new(config).expect("the settings are in range");
//! arbiter.handle_timeout(Now { mono: Mono::from_ns(0), sync: Timestamp::from_ns(0) });
//! assert!(arbiter.is_primary(), "an arbiter without peers need not wait for them");
//! let client = ClientConfig::new(ProcessId(0), 4, ProcessId(4), 1_250);
//! let mut client = Client::new(client).expect("the settings are in range");
//! client.enqueue(ProcessId(3), b"sent in a timeslot").expect("the queue is empty");
//! ```
//!
//! # Invariants
//! - A packet is sent in a timeslot that was granted to its pair, or not at all.
//! - A lost, repeated or late control packet costs time, never a timeslot that is granted twice:
//!   both ends exchange totals.
//! - At most one arbiter grants the timeslots of an instant (`failover`).
//! - Deterministic: equal input gives equal output. No heap allocation after `new`, no floating
//!   point, no clock.

#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

mod arbiter;
mod client;
mod clock;
mod comm;
mod command;
mod control;
mod core_paths;
mod failover;
mod fcp;
mod pipeline;
mod transfer;

pub use arbiter::Arbiter;
pub use client::{
    Client, ClientConfig, ClientEvent, ClientStats, EnqueueError, Labels, ParamsMismatch,
};
pub use clock::SlotClock;
pub use comm::{Comm, CommConfig, CommStats};
pub use command::{BatchSummary, Command, Demand, RefusedDemand};
pub use control::{
    ArbiterConfig, ArbiterError, ArbiterEvent, ArbiterStats, BatchScheduler, ControlPlane,
    ScheduledBatch,
};
pub use core_paths::{Core, CorePaths};
pub use failover::{FailoverConfig, Role};
pub use fcp::SessionTimes;
pub use onepipe_isolation::Fault;
pub use onepipe_timeslots::{
    Allocator, BATCH_SLOTS_MAX, Batch, Capacity, CapacityError, Config, ConfigError, DemandTable,
    Fabric, FabricError, Flow, Flows, Grant, NO_DESTINATION, PathStats, Paths, Policy,
    RequestError, Routes, Schedule, Stage, Timeslot, Tree, TreePaths,
};
pub use onepipe_wire::FcpParams;
pub use pipeline::{AllocatedBatch, Dispatcher, Worker, WorkerCommand, WorkerQueues};
pub use transfer::{
    OBJECT_LEN_MIN, ObjectId, Transfer, TransferConfig, TransferError, TransferEvent, TransferStats,
};
