//! The arbiter of scheduled transfer as a daemon, behind a switch over UDP.
//!
//! demand → allocate → timeslots → path → grants: all of it is the machine
//! [`onepipe_arbiter::Arbiter`]; [`ArbiterDaemon`] gives it a socket, a clock and a thread. With
//! more cores than one the thread has the machine [`onepipe_arbiter::ControlPlane`] alone, and a
//! [`onepipe_arbiter::Worker`] is on each of the others, joined by rings with one writer and one
//! reader: what is granted is the same.
//!
//! # Invariants
//! - It decides nothing: what is granted is the machine's.
//! - It learns of its endpoints, and they of it, by what they send through the switch; so it is
//!   heard there from its beginning, even when nobody has asked it yet.
//! - It counts nowhere in the order of messages: it neither joins nor promises anything.

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
pub use ring::{RingWorker, StepResult, WorkerRings, worker_ring};
