//! How long a fabric takes to recover, simulated: figure 10 of 1Pipe, and far beyond its 32 hosts.
//!
//! `[recovery]` is the real machines (endpoints, switches, the controller) over `sim/network`, with
//! a single controller that nobody disturbs and a store that always answers. One part fails, and
//! the commit barriers of all correct processes are watched from outside. What may go wrong beside
//! that is the matter of `sim/scenarios`.
//!
//! ```
//! use onepipe_sim_recovery::{Component, Options, Recovery, run};
//!
//! let options = Options::testbed(4, Component::Host, Recovery::Tree, 1);
//! let measured = run(&options, |_| {})?;
//! assert_eq!((measured.failed, measured.correct), (1, 3));
//! assert!(measured.stall_us() > 30.0, "ten beacon intervals pass before anybody notices");
//! # Ok::<(), onepipe_sim_recovery::Failure>(())
//! ```
//!
//! # Invariants
//! - Equal options give equal results.
//! - Every number of the simulated world is in [`Calibration`], with its source.

#![forbid(unsafe_code)]

mod calibration;
mod figure;
mod gauge;
mod node;
mod observer;
mod run;

pub use calibration::Calibration;
pub use figure::{FIGURE_HOSTS, paper_us};
pub use observer::Thought;
pub use onepipe_controller::Recovery;
pub use run::{Component, Failure, Measured, Options, run};
