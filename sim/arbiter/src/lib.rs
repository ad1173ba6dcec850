//! Bulk traffic in a simulated network, with and without an arbiter that schedules it.
//!
//! `[simulations of scheduled transfer]` A [`Setup`] defines the fabric, the flows, the pings and
//! the arbiters. A [`SimEnv`] runs it in virtual time, and [`measure`] observes one receiver: the
//! length of the queue before it, the throughput of each sender, ping times and retransmissions
//! (Fastpass, SIGCOMM 2014, section 7; `docs/design/arbiter.md`).
//!
//! ```
//! use onepipe_sim_arbiter::{Flow, Plan, Setup, measure};
//!
//! let flows = (1..=4).map(|from| Flow::endless(from, 0)).collect();
//! let setup = Setup { flows, ..Setup::rack() };
//! let plan = Plan { warm_up_ns: 20_000_000, measure_ns: 20_000_000, ..Plan::of(0) };
//! let measured = measure(&setup, &plan);
//! assert!(measured.goodput_bits_per_s() > 9e9);
//! assert!(measured.queue_bytes(0.5) > 1_000_000, "TCP fills the buffer of the switch");
//! ```
//!
//! # Invariants
//! - Equal setups have equal histories.
//! - No timeslot is granted twice, despite faults of arbiters and links: a [`GrantChecker`] sees
//!   every grant that reaches an endpoint.
//! - Queues are measured twice: by the network, which drops and marks by them, and by an [`Egress`]
//!   of this crate, which only sees the frames that leave.

#![forbid(unsafe_code)]

mod arbiter_host;
mod control;
mod egress;
mod env;
mod fabric;
mod gate;
mod grant_checker;
mod host_traffic;
mod measure;
mod node;
mod setup;
mod workload;

pub use arbiter_host::ArbiterHost;
pub use control::{Control, ControlTraffic};
pub use egress::{Egress, QueuePeak};
pub use env::SimEnv;
pub use fabric::fabric_of;
pub use gate::{Gated, PacketSource};
pub use grant_checker::GrantChecker;
pub use host_traffic::{HostEvent, HostTraffic};
pub use measure::{Measured, Plan, measure, observe};
pub use setup::{Arbitration, Flow, OfferedLoad, Ping, Setup};
