//! Reproduces the evaluation of the papers: our machines on a simulation of their testbeds,
//! compared with their points.
//!
//! An [`Experiment`] is a value: the varied parameter, the required runs, the paper's points, and
//! the claims. A [`Record`] runs what is missing and stores every run in a file, so that an
//! interrupted evaluation resumes; a [`Shard`] is every Nth run, and records of shards are merged.
//! [`write()`] produces a CSV file and a chart of every figure, a
//! page with all of them, and the table of claims.
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
//! - No constant is fitted to a curve that is compared with it: [`Calibration`] gives the source of
//!   each constant, [`Role::Calibration`] marks the curve that constants were derived from.
//! - [`Outcome::Better`] follows from values and [`Outcome::PaperContradictsItself`] from two
//!   numbers of the paper: neither is asserted.
//! - Equal setups give equal values.
//! - A run that delivers in a wrong order, or loses a message without a fault, is an error.

#![forbid(unsafe_code)]

mod calibration;
mod cores;
mod env;
mod experiment;
mod experiments;
mod output;
mod quick;
mod reference;
mod role;
mod runner;
mod shard;
mod source;
mod values;
mod verdict;

pub use calibration::Calibration;
pub use env::{
    Access, Background, Class, Condition, Disruption, Form, InFlight, Isolation, KeyValue, Large,
    Multicast, PrimaryFault, Rack, RackTraffic, ReplicaRemoval, Scheduler, Scheme, Setup, System,
    Table, Takeover, Threads, Tpcc, Traffic,
};
pub use experiment::{
    Agreed, Axis, Claim, Comparison, ContradictedPoints, Curve, Experiment, Measured, Role, Task,
    Variant, value_at,
};
pub use experiments::all;
pub use output::{ClaimResult, Counts, Figure, claim_results, summary, write};
pub use reference::Reference;
pub use runner::{Progress, Record};
pub use shard::{Shard, ShardError};
pub use source::Source;
pub use values::Values;
pub use verdict::{Better, Contradiction, Outcome, Stated, Verdict, is_near};
