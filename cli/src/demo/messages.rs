//! Control messages between a demo and its workers: lines of JSON on stdin and stdout.

use std::net::SocketAddr;

use onepipe_verify_logs::{Counts, Fault, LogPart};
use serde::{Deserialize, Serialize};

/// First line read by a worker: its parameters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkerSpec {
    pub process: u32,
    pub processes: u32,
    pub fabric: FabricAddress,
    /// Bytes per message.
    pub payload_len: usize,
    /// Scatterings per second; unlimited if `None`.
    pub rate_per_s: Option<f64>,
    /// Maximum number of scatterings in flight: sent, and not yet delivered to the sender itself.
    pub outstanding_max: u64,
    /// Whether every other scattering is reliable; the controller's process id follows that of the
    /// last worker.
    pub is_reliable: bool,
    /// Length of a window of the log, in ns.
    pub window_ns: u64,
    /// Calibration of the parent's clock, so that all measure latency with the same clock.
    pub calibration: [u64; 4],
    /// Fault that this worker injects.
    pub inject_fault: Option<Fault>,
}

/// Where workers join.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FabricAddress {
    /// Name of a shared-memory segment.
    SharedMemory(String),
    /// Address of a software switch.
    Switch(SocketAddr),
}

/// Commands to a worker, one per line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkerCommand {
    /// Start sending.
    Start,
    /// Stop sending to this process, which was killed.
    Gone(u32),
    /// Stop sending, and report when all messages have an outcome.
    Stop,
    /// Leave and exit.
    Quit,
}

/// Reports of a worker, one per line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum WorkerReport {
    /// It has joined.
    Ready,
    /// Sample, ten times a second.
    Sample(Sample),
    /// All its messages have an outcome, and nothing arrives any more.
    Drained,
    /// The process has left: the rest of the log, and all latencies with their counts, in ns.
    Left(Sample, Vec<(u64, u64)>),
}

/// Numbers since the start, and the logs since the previous sample.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Time of the sample, in ns of the parent's clock.
    pub at_ns: u64,
    /// Messages delivered.
    pub delivered: u64,
    /// Deliveries per second since the previous sample.
    pub rate_per_s: f64,
    /// Highest timestamp delivered, in ns.
    pub seen_ns: u64,
    /// How far the barrier lags behind the clock, in ns.
    pub barrier_lag_ns: u64,
    /// Latencies from submission to delivery in ns: p50, p99, maximum.
    pub latency_ns: [u64; 3],
    /// Own scatterings of both services.
    pub submitted: u64,
    /// Outcomes of own messages of best effort.
    pub best_effort: Counts,
    /// Logs of best effort and, if it is used, of the reliable service.
    pub logs: Vec<LogPart>,
}

impl Sample {
    /// Returns the best-effort messages that failed.
    pub fn failed(&self) -> u64 {
        self.best_effort.lost + self.best_effort.unknown
    }
}
