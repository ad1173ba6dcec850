//! What the demo's processes say to each other beside the pipe: lines of JSON on stdin and stdout.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::log::{SendFailures, StreamFaults, Window};
use super::reliable::ReliableSample;

/// The first line that a worker reads: what it is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkerSpec {
    /// Who it is.
    pub process: u32,
    /// How many there are.
    pub processes: u32,
    /// Where to join.
    pub fabric: FabricAddress,
    /// Bytes a message.
    pub payload_len: usize,
    /// Scatterings a second; as many as possible if `None`.
    pub rate_per_s: Option<f64>,
    /// Scatterings that may be under way: sent, and not yet delivered to the sender itself.
    pub outstanding_max: u64,
    /// Whether every other scattering is a reliable one; the controller is the process behind the
    /// last.
    pub is_reliable: bool,
    /// Length of a window of the log, in ns.
    pub window_ns: u64,
    /// The starter's clock, so that all measure latency with the same one.
    pub calibration: [u64; 4],
    /// What this worker does wrong on purpose.
    pub inject_fault: Option<InjectedFault>,
}

/// Where workers meet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FabricAddress {
    /// A segment of shared memory, by name.
    SharedMemory(String),
    /// A software switch.
    Switch(SocketAddr),
}

/// What a worker does wrong on purpose, so that the checks can be seen to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum InjectedFault {
    /// It takes two messages in the wrong order.
    Order,
    /// It takes two messages for each other, and believes that all is well.
    Swap,
    /// It forgets a message.
    Loss,
}

/// What a worker is told after that, a word a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkerCommand {
    /// Send.
    Start,
    /// Nobody needs to send to this one any more.
    Gone(u32),
    /// Send no more; say when everything has arrived.
    Stop,
    /// Leave and end.
    Quit,
}

/// What a worker says, a line each.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum WorkerReport {
    /// It has joined.
    Ready,
    /// How it goes, ten times a second.
    Sample(Sample),
    /// Everything that it sent has its fate, and nothing arrives any more.
    Drained,
    /// It has left.
    FinalReport(FinalReport),
}

/// How it goes since the sample before, unless it says otherwise.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// When, in ns of the starter's clock.
    pub at_ns: u64,
    /// Messages delivered since the start.
    pub delivered: u64,
    /// Scatterings submitted since the start.
    pub submitted: u64,
    /// Own messages reported lost, since the start.
    pub lost: u64,
    /// Own messages reported with unknown fate, since the start.
    pub unknown: u64,
    /// How far what has been delivered lags behind the clock, in ns.
    pub barrier_lag_ns: u64,
    /// Latencies from submission to delivery.
    pub latency: Latency,
    /// The timestamp of the message delivered last, in ns.
    pub timestamp_ns: u64,
    /// Pauses between deliveries: the longest that began in each millisecond. Begin and length, in
    /// ns of the starter's clock.
    pub pauses: Vec<(u64, u64)>,
    /// The same of the process's own messages to itself.
    pub own_pauses: Vec<(u64, u64)>,
    /// What is wrong with its stream, since the start.
    pub faults: StreamFaults,
    /// Complete windows of its log.
    pub windows: Vec<Window>,
    /// What it was told about its messages.
    pub failures: Vec<SendFailures>,
    /// All windows below this are complete.
    pub closed_below: u64,
    /// The reliable stream, if there is one.
    pub reliable: Option<ReliableSample>,
}

/// A distribution in short, in ns.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Latency {
    /// Half are below this.
    pub p50_ns: u64,
    /// 99 % are below this.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// A worker's last word.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FinalReport {
    /// The rest of the log.
    pub sample: Sample,
    /// All latencies: value in ns, and how often.
    pub latencies: Vec<(u64, u64)>,
}
