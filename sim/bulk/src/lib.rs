//! Bulk multicast in a simulated network.
//!
//! `[world of bulk multicast]` A [`Setup`] says which fabric, who is in the group and what the root
//! sends; a [`World`] is built from it and lives through virtual time; [`Outcome`] says when each
//! member had everything, and how much has crossed between switches. Links lose what their queues
//! cannot hold, and mark what finds them long.
//!
//! A [`Mesh`] has no fabric: each two members share a link of their own, as in the formulas of the
//! paper. Its [`Flow`] tells how every block came to every member.
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
//! - Every byte that is delivered is compared with what was sent (K).

#![forbid(unsafe_code)]

mod application;
mod mesh;
mod node;
mod setup;
mod world;

pub use mesh::{Flow, Hop, Mesh};
pub use setup::Setup;
pub use world::{Outcome, Stats, World};
