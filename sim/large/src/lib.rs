//! Payloads of any size in the total order of a simulated fabric.
//!
//! `[world of ordered scattering with large payloads]` A [`Setup`] says which fabric and what is
//! scattered when; a [`World`] lives through it; a [`Story`] says what everybody was told, in the
//! order in which it was. Hosts have one process each, an endpoint for payloads of any size behind
//! a virtual switch; the last host is the controller's where there is one.
//!
//! ```
//! use onepipe_sim_large::{Scattering, Setup, World};
//! use onepipe_topology::Shape;
//!
//! let large = Scattering::new(100_000, 0, vec![1, 2, 3], 1 << 20);
//! let story = World::new(Setup { scatterings: vec![large], ..Setup::new(Shape::testbed(), 4) })
//!     .run(1_000_000);
//! assert!((1..4).all(|process| story.delivered[process].len() == 1));
//! ```
//!
//! # Invariants
//! - Equal setups live through equal histories.
//! - Every byte that is delivered is compared with what was sent (K).

#![forbid(unsafe_code)]

mod application;
mod node;
mod setup;
mod world;

pub use application::{Seen, Story};
pub use setup::{Probes, Scattering, Setup};
pub use world::World;
