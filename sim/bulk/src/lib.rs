//! Bulk multicast in a simulated network.
//!
//! `[world of bulk multicast]` A [`Setup`] says which fabric, who is in the group and what the root
//! sends; a [`World`] is built from it and lives through virtual time; [`Outcome`] says when each
//! member had everything, and how much has crossed between switches. Links lose what their queues
//! cannot hold, and mark what finds them long.
//!
//! ```
//! use onepipe_sim_bulk::{Setup, World};
//! use onepipe_topology::Shape;
//!
//! let setup = Setup { objects: vec![1 << 20], ..Setup::new(Shape::testbed(), 8) };
//! let outcome = World::new(&setup).run(1_000_000_000);
//! assert!(outcome.is_clean && outcome.last_ns().is_some());
//! ```
//!
//! # Invariants
//! - Equal setups live through equal histories.
//! - Every octet that is delivered is compared with what was sent (K).

#![forbid(unsafe_code)]

mod application;
mod node;
mod setup;
mod world;

pub use setup::Setup;
pub use world::{Outcome, Stats, World};
