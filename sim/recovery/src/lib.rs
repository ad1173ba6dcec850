//! Simulates how long a fabric takes to recover: figure 10 of 1Pipe, and far beyond its 32 hosts.
//!
//! This crate runs the real machines (endpoints, switches, the controller) over
//! `onepipe_sim_network` with a single undisturbed controller and a store that never fails. One
//! component fails, and the commit barriers of all correct processes are measured from outside.
//! Scenarios with more than one fault are in `onepipe_sim_scenarios`.
//!
//! ```
//! use onepipe_sim_recovery::{Component, Options, Recovery, run};
//!
//! let options = Options::testbed(4, Component::Host, Recovery::Tree, 1);
//! let measured = run(&options, |_| {})?;
//! assert_eq!((measured.failed, measured.correct), (1, 3));
//! assert!(measured.stall_us() > 30.0, "detection takes ten beacon intervals");
//! # Ok::<(), onepipe_sim_recovery::Failure>(())
//! ```
//!
//! # Invariants
//! - Equal options give equal results.
//! - Every parameter of the simulated fabric is in [`Calibration`], with its source.

#![forbid(unsafe_code)]

mod calibration;
mod figure;
mod node;
mod observer;
mod run;
mod stall;

pub use calibration::Calibration;
pub use figure::{FIGURE_HOSTS, paper_us};
pub use observer::ControllerWork;
pub use onepipe_controller::Recovery;
pub use run::{Component, Failure, Measured, Options, run};
