//! The HTTP status endpoint of a daemon whose own thread drives a machine.
//!
//! A second thread serves `GET /status` (JSON) and `GET /metrics` (OpenMetrics). It requests a
//! report from the daemon for each HTTP request; without requests the daemon has no cost.
//!
//! # Invariants
//! - The daemon's thread never waits for an HTTP client.
//! - The number of connections and the time of each have a limit; the metrics count those that
//!   were cut off.
//! - A daemon that does not respond in time, or has ended, is reported as unavailable (503).

#![forbid(unsafe_code)]

mod connections;
mod metrics;
mod server;

pub use metrics::{CONTENT_TYPE, Metrics, encode_metrics};
pub use server::{Server, StatusRequests, bind};

/// A daemon's report: a snapshot of its state.
pub trait Status: serde::Serialize + Clone + Send + Sync + std::fmt::Debug + 'static {
    /// Prefix of the names of its metrics.
    const PREFIX: &'static str;

    /// Writes the metrics of the report.
    ///
    /// # Errors
    /// Those of the writer.
    fn write(&self, metrics: &mut Metrics<'_>) -> std::fmt::Result;
}
