//! What a daemon says of itself over HTTP, while its own thread drives a machine.
//!
//! A thread beside it answers `GET /status` (JSON) and `GET /metrics` (OpenMetrics). It asks the
//! daemon for a report each time, which costs the daemon nothing while nobody asks.
//!
//! # Invariants
//! - The thread of the machine never waits for who asks.
//! - A daemon that has no time for an answer, or has ended, is said to be unavailable.

#![forbid(unsafe_code)]

mod metrics;
mod server;

pub use metrics::{CONTENT_TYPE, Metrics, encode_metrics};
pub use server::{Server, StatusRequests, bind};

/// A daemon's report: everything that it tells at one moment.
pub trait Status: serde::Serialize + Clone + Send + Sync + std::fmt::Debug + 'static {
    /// With what the names of its metrics begin.
    const PREFIX: &'static str;

    /// Writes what of it monitors read.
    ///
    /// # Errors
    /// Those of writing.
    fn write(&self, metrics: &mut Metrics<'_>) -> std::fmt::Result;
}
