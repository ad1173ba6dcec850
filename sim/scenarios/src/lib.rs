//! Whole fabrics in virtual time: the real endpoints and switches with a load, faults and checkers.
//!
//! This crate combines the crates of `sim/*`. [`run`] is one run with a few parameters, as offered
//! on the command line; [`Fabric`] is a fabric for scripted scenarios (see `tests/`); [`swarm`] is
//! a random scenario drawn from a seed. Every run checks the invariants of `onepipe_sim_check`, and
//! [`Bug`]s show that the checks can fail.
//!
//! ```
//! use onepipe_sim_scenarios::{Fabric, Plan};
//! use onepipe_topology::Shape;
//!
//! let mut fabric = Fabric::new(Plan::new(Shape::star(3)?, 1, 7, 1_000_000));
//! fabric.run_us(100);
//! fabric.scatter(0, &[(1, 64), (2, 64)]).expect("runs")?;
//! fabric.drain_us(1_000);
//! let report = fabric.finish();
//! assert_eq!((report.messages.delivered, report.violations), (2, 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Invariants
//! - Equal plans give equal histories in every build (tested against pinned hashes).
//! - The machines are those of `protocol/*`, unchanged; bugs are injected around them, and only if
//!   the plan asks for one.

#![forbid(unsafe_code)]

mod app;
mod bug;
mod control_plane;
mod demand;
mod fabric;
mod fuzz;
mod hosted;
#[cfg(feature = "mistakes")]
mod mutation;
mod node;
mod pause;
mod payload;
mod plan;
mod process;
mod report;
mod run;
mod shared;
mod sim_switch;
mod swarm;

pub use app::FabricApp;
pub use bug::Bug;
pub use control_plane::ControlPlaneStats;
pub use demand::demand;
pub use fabric::Fabric;
pub use fuzz::{FailingSeed, FuzzOptions, FuzzReport, fuzz, shrink};
pub use hosted::{HostedEvent, HostedMachine};
#[cfg(feature = "mistakes")]
pub use mutation::{caught, detected};
pub use node::Node;
pub use onepipe_sim_network::{HopKind, Placement};
pub use pause::{PauseOptions, PauseReport, pauses};
pub use plan::{ControlPlanePlan, Plan};
pub use process::Process;
pub use report::{Latency, Report};
pub use run::{Options, end, run, start};
pub use shared::shared;
pub use sim_switch::SimSwitch;
pub use swarm::{FaultEvent, RunOutcome, Swarm, swarm};
