//! The evaluation of the papers, run again: our machines on their testbed, simulated, beside their
//! points.
//!
//! An [`Experiment`] is a value: what is varied, which runs that needs, the paper's points, and
//! what is claimed. A [`Record`] runs what is missing, and keeps every run in a file, so that an
//! interrupted evaluation goes on where it was. [`write()`] leaves a table of points and a picture
//! of every figure, a page with all of them, and the table of claims.
//!
//! ```
//! use onepipe_bench_figures::{Setup, System, Traffic};
//!
//! let traffic = Traffic::Idle { every_ns: 20_000 };
//! let setup = Setup { measure_us: 100, ..Setup::new(System::BestEffort, 8, traffic) };
//! let measured = setup.run()?;
//! assert!(measured["latency_mean_us"] < 10.0);
//! # Ok::<(), anyhow::Error>(())
//! ```
//!
//! # Invariants
//! - No constant is fitted to a curve that is judged by it: [`Calibration`] says where each comes
//!   from, [`Role`] which curve was used.
//! - Equal setups give equal values.
//! - A run that delivers anything in a wrong order, or loses what nothing has lost, is an error.

#![forbid(unsafe_code)]

mod calibration;
mod cores;
mod experiment;
mod experiments;
mod output;
mod reference;
mod runner;
mod world;

pub use calibration::Calibration;
pub use experiment::{
    Agreed, Axis, Claim, Compared, Curve, Experiment, Measured, Role, Task, Values, Verdict,
    value_at,
};
pub use experiments::all;
pub use output::{Figure, Line, lines, summary, write};
pub use reference::Reference;
pub use runner::{Progress, Record};
pub use world::{
    Background, Bulk, Form, Large, Lesson, Mishap, Multicast, Rack, Scheduler, Scheme, Setup,
    System, Takeover, Traffic,
};
