//! Simulation of bulk multicast.
//!
//! A [`Setup`] defines the fabric, the group and the objects. A [`SimEnv`] runs it in virtual time.
//! An [`Outcome`] reports when each member had everything, and how many bytes crossed between
//! switches. Links drop frames when their queues are full, and mark frames when queues are long.
//!
//! A [`Mesh`] has no fabric: each pair of members has its own link, as in the formulas of the
//! paper. Its [`Flow`] reports how every block reached every member.
//!
//! ```
//! use onepipe_sim_bulk::{Setup, SimEnv};
//! use onepipe_topology::Shape;
//!
//! let setup = Setup { objects: vec![1 << 20], ..Setup::new(Shape::testbed(), 8) };
//! let outcome = SimEnv::new(&setup).run(1_000_000_000);
//! assert!(outcome.is_clean && outcome.last_ns().is_some());
//! ```
//!
//! # Invariants
//! - Equal setups give equal histories.
//! - Every byte delivered is compared with what was sent (invariant K of `protocol/bulk`).

#![forbid(unsafe_code)]

mod application;
mod env;
mod mesh;
mod node;
mod setup;

pub use env::{Outcome, SimEnv, Stats};
pub use mesh::{Flow, Hop, Mesh};
pub use setup::Setup;
