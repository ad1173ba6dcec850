//! Simulation of large payloads in the total order.
//!
//! `[simulation of ordered scattering with large payloads]` A [`Setup`] describes the fabric and
//! the scatterings; a [`SimEnv`] runs it in virtual time; a [`Report`] lists what every process was
//! notified of, in order. Each host runs one process, an endpoint for payloads of any size behind a
//! virtual switch; with a controller, the last host runs it.
//!
//! ```
//! use onepipe_sim_large::{Scattering, Setup, SimEnv};
//! use onepipe_topology::Shape;
//!
//! let large = Scattering::new(100_000, 0, vec![1, 2, 3], 1 << 20);
//! let setup = Setup { scatterings: vec![large], ..Setup::new(Shape::testbed(), 4) };
//! let report = SimEnv::new(setup).run(1_000_000);
//! assert!((1..4).all(|process| report.delivered[process].len() == 1));
//! ```
//!
//! # Invariants
//! - Equal setups give equal histories.
//! - Every delivered byte is compared with the one sent (invariant K of `protocol/bulk`).

#![forbid(unsafe_code)]

mod application;
mod env;
mod node;
mod setup;

pub use application::{Received, Report};
pub use env::SimEnv;
pub use setup::{Probes, Scattering, Setup};
