//! Simulation of agreed multicast.
//!
//! A [`Setup`] defines the fabric, the groups and the load. A [`SimEnv`] runs it in virtual time:
//! members are in switches (a leader in a top-of-rack switch, its followers in spines), replicas,
//! clients and coordinators are on hosts. [`FaultEvent`]s inject faults. With [`Setup::is_rival`]
//! hosts are the members, as in PrimCast, and the CPU cost of frames counts.
//!
//! ```
//! use onepipe_sim_amcast::{Load, Setup, SimEnv};
//! use onepipe_topology::Shape;
//!
//! let setup = Setup::new(Shape::leaf_spine(2, 2, 4)?);
//! let setup = Setup { load: Load { messages: 20, ..setup.load }, ..setup };
//! let mut env = SimEnv::new(&setup);
//! assert_eq!(env.run_to_completion(20_000_000), None);
//! assert_eq!(env.deliveries().len(), 40, "at two replicas");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Invariants
//! - Equal setups and faults give equal histories.
//! - Every delivery is checked, and every frame for genuineness (`onepipe_sim_check`).

#![forbid(unsafe_code)]

mod application;
mod env;
mod failover;
mod fault;
mod fuzz;
mod layout;
mod load_point;
#[cfg(feature = "mistakes")]
mod mutation;
mod node;
mod reachability;
mod routes;
mod setup;
mod store;
mod swarm;
mod switch;

pub use application::Delivered;
pub use env::{Quorums, SimEnv};
pub use failover::{Failover, Victim, failover, failover_setup, failovers};
pub use fault::{FaultEvent, PacketFilter};
pub use fuzz::{FuzzReport, fuzz};
pub use layout::Layout;
pub use load_point::{LoadPoint, LoadResult, Orderer};
#[cfg(feature = "mistakes")]
pub use mutation::{CAUGHT_BY_SEEDS, caught, first_violation};
pub use setup::{Load, SendPattern, Setup, Shift};
pub use swarm::{Outcome, Swarm};
