//! Agreed multicast in a simulated network.
//!
//! `[world of agreed multicast]` A [`Setup`] says which fabric, which groups and what clients send;
//! a [`World`] is built from it: members live in switches (a leader in a top-of-rack switch, its
//! followers in spines), replicas, clients and coordinators on hosts. [`Mishap`]s befall it. With
//! [`Setup::is_rival`] hosts are the members, as PrimCast has it, and what frames cost processors
//! counts.
//!
//! ```
//! use onepipe_sim_amcast::{Load, Setup, World};
//! use onepipe_topology::Shape;
//!
//! let setup = Setup::new(Shape::leaf_spine(2, 2, 4)?);
//! let setup = Setup { load: Load { messages: 20, ..setup.load }, ..setup };
//! let mut world = World::new(&setup);
//! assert_eq!(world.settle(20_000_000), None);
//! assert_eq!(world.deliveries().len(), 40, "at two replicas");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Invariants
//! - Equal setups and mishaps live through equal histories.
//! - Every delivery is checked, and every frame for who may hear of what (`onepipe_sim_check`).

#![forbid(unsafe_code)]

mod application;
mod court;
#[cfg(feature = "mistakes")]
mod drill;
mod element;
mod failover;
mod fuzz;
mod mishap;
mod node;
mod poster;
mod seats;
mod setup;
mod swarm;
mod ways;
mod world;

pub use application::Delivered;
#[cfg(feature = "mistakes")]
pub use drill::{CAUGHT_BY_SEEDS, caught, shown};
pub use failover::{Failover, Victim, failover, failover_setup, failovers};
pub use fuzz::{FuzzReport, fuzz};
pub use mishap::{Mishap, Muted};
pub use poster::{Measured, Orderer, Poster};
pub use seats::Seats;
pub use setup::{Load, Pace, Setup, Shift};
pub use swarm::{Outcome, Swarm};
pub use world::{Quorums, World};
