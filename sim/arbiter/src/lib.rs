//! Bulk traffic in a simulated network, with an arbiter that schedules it and without.
//!
//! `[worlds of scheduled transfer]` A [`Setup`] says which fabric, which flows, which questions and
//! who schedules; a [`SimEnv`] is built from it and lives through virtual time; [`measure`] looks at
//! one receiver meanwhile: how long the queue before it is, what each sender gets through, how long
//! answers take, what is sent again (Fastpass, SIGCOMM 2014, section 7; design: arbiter.md).
//!
//! ```
//! use onepipe_sim_arbiter::{Flow, Plan, Setup, measure};
//!
//! let flows = (1..=4).map(|from| Flow::endless(from, 0)).collect();
//! let setup = Setup { flows, ..Setup::rack() };
//! let plan = Plan { warm_up_ns: 20_000_000, measure_ns: 20_000_000, ..Plan::of(0) };
//! let measured = measure(&setup, &plan);
//! assert!(measured.goodput_bits_per_s() > 9e9);
//! assert!(measured.queue_bytes(0.5) > 1_000_000, "TCP fills the switch's memory");
//! ```
//!
//! # Invariants
//! - Equal setups live through equal histories.
//! - No timeslot is granted twice, whatever happens to arbiters and links: a [`GrantChecker`] looks at
//!   every grant that reaches an endpoint.
//! - Queues are counted twice: by the network, which drops and marks by them, and by an [`Egress`]
//!   of this crate, which sees nothing but the frames that leave.

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
