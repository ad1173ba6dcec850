//! The arbiter of scheduled transfer as a daemon, attached to a switch over UDP.
//!
//! demand → allocate → timeslots → path → grants: all of it is the machine
//! [`onepipe_arbiter::Arbiter`]; [`ArbiterDaemon`] gives it a socket, a clock and a thread. With
//! several cores the thread runs the machine [`onepipe_arbiter::ControlPlane`], and each other core
//! a [`onepipe_arbiter::Worker`], joined by single-producer, single-consumer rings. The grants are
//! the same as with one core.
//!
//! # Invariants
//! - The daemon makes no decisions: the machine does.
//! - Arbiter and endpoints find each other through the switch, which learns the attachment of each
//!   from its packets. So the arbiter sends watchdogs from its start, before any request.
//! - The arbiter takes no part in the order of messages: it neither joins nor promises anything.

#![forbid(unsafe_code)]

mod config;
mod daemon;
mod pipelined;
mod report;
mod ring;
mod worker_pool;

pub use config::{Config, StartError};
pub use daemon::ArbiterDaemon;
pub use report::{Avoided, Report};
pub use ring::{RingWorker, TurnResult, WorkerRings, connect_workers};
