//! Owners of memory and clients of tables in the simulated fabric.
//!
//! `load → client → [requests] → owner → replies → client → history → checks`
//!
//! A [`Cluster`] has processes with owners of `onepipe-memory` and clients of `onepipe-table` over
//! the real endpoints, switches and, if its plan has one, the controller, in virtual time. A
//! [`Load`] says what the clients do.
//!
//! [`run`] is a random scenario drawn from a seed, with lossy links, pauses, crashes and clock
//! steps. The history of all calls has to be linearizable for each key, and the replicas of a shard
//! have to be equal. [`RatesRun`] measures rates, beside those of rivals.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod cluster;
mod load;
mod rates;
mod recorded;
mod rival;
mod run;
mod scenario;
mod server;
mod setup;
mod terminals;

pub use cluster::Cluster;
pub use load::{Command, Done, Load, Next};
pub use rates::{Figures, Operations, Protocol, RatesRun};
pub use recorded::{Mix, Recorded};
pub use run::{Report, run};
pub use scenario::{FaultEvent, Scenario};
pub use setup::Setup;
