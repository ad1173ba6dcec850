//! Control messages between a demo and its workers: lines of JSON on stdin and stdout.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::log::{SendFailures, StreamFaults, Window};
use super::reliable::ReliableSample;

/// First line read by a worker: its parameters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkerSpec {
    /// Process id.
    pub process: u32,
    /// Number of processes.
    pub processes: u32,
    /// Fabric to join.
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
    pub inject_fault: Option<InjectedFault>,
}

/// Where workers join.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FabricAddress {
    /// Name of a shared-memory segment.
    SharedMemory(String),
    /// Address of a software switch.
    Switch(SocketAddr),
}

/// A fault that a worker injects into its log, which the checks must detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum InjectedFault {
    /// Logs two messages in the wrong order.
    Order,
    /// Swaps the numbers of two messages, so that its own checks pass.
    Swap,
    /// Omits a message.
    Loss,
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
    /// It has left.
    FinalReport(FinalReport),
}

/// Counters since the previous sample, unless stated otherwise.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Time of the sample, in ns of the parent's clock.
    pub at_ns: u64,
    /// Messages delivered since the start.
    pub delivered: u64,
    /// Scatterings submitted since the start.
    pub submitted: u64,
    /// Own messages reported lost, since the start.
    pub lost: u64,
    /// Own messages reported with unknown outcome, since the start.
    pub unknown: u64,
    /// How far the barrier lags behind the clock, in ns.
    pub barrier_lag_ns: u64,
    /// Latencies from submission to delivery.
    pub latency: Latency,
    /// Timestamp of the last delivery, in ns.
    pub timestamp_ns: u64,
    /// Pauses between deliveries: the longest that began in each millisecond. Start and length, in
    /// ns of the parent's clock.
    pub pauses: Vec<(u64, u64)>,
    /// Pauses between deliveries of the process's own messages to itself.
    pub own_pauses: Vec<(u64, u64)>,
    /// Faults of its stream, since the start.
    pub faults: StreamFaults,
    /// Complete windows of its log.
    pub windows: Vec<Window>,
    /// Failures reported for its messages.
    pub failures: Vec<SendFailures>,
    /// All windows below this are complete.
    pub closed_below: u64,
    /// The reliable stream, if there is one.
    pub reliable: Option<ReliableSample>,
}

/// Summary of a distribution, in ns.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Latency {
    /// 50 % of the values are at or below this.
    pub p50_ns: u64,
    /// 99 % of the values are at or below this.
    pub p99_ns: u64,
    /// The largest value.
    pub max_ns: u64,
}

/// Last report of a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FinalReport {
    /// The rest of the log.
    pub sample: Sample,
    /// All latencies: value in ns, and count.
    pub latencies: Vec<(u64, u64)>,
}
