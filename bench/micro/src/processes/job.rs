//! Input and output of one process of a benchmark.

use onepipe_transport_driver::Idle;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Fabric {
    /// Shared memory, by segment name.
    Shm(String),
    /// UDP through the software switch at this address, with frames of at most this length.
    Udp { switch: String, frame_len: usize },
}

/// Where a process runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Location {
    /// The network namespace; `None`: that of the benchmark.
    pub namespace: Option<String>,
    /// The devices whose frames a switch handles in the kernel.
    pub xdp: Vec<String>,
}

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Role {
    /// Sends to process 1 as fast as possible.
    Flood,
    /// Receives what process 0 sends.
    Sink,
    /// Sends to all processes as fast as possible, and receives.
    AllToAll,
    /// Sends one message to process 1, waits for the reply, and repeats.
    Ping,
    /// Replies to pings.
    Pong,
    /// The software switch; exits when idle for a second.
    Switch,
    /// A rival's sequencer; exits when idle for a second.
    Sequencer,
}

/// Ordering method of a rival (crate `onepipe_rivals`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RivalMethod {
    /// None: messages are delivered as they arrive.
    Unordered,
    /// A circulating token.
    Token,
    /// Logical clocks.
    Lamport,
    /// A dedicated process numbers all messages.
    Sequencer,
    /// The switch numbers all messages. UDP only.
    SwitchSequencer,
}

impl RivalMethod {
    /// All methods.
    pub const ALL: [Self; 5] =
        [Self::Unordered, Self::Token, Self::Lamport, Self::Sequencer, Self::SwitchSequencer];

    /// Returns the method's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unordered => "unordered",
            Self::Token => "token",
            Self::Lamport => "lamport",
            Self::Sequencer => "sequencer",
            Self::SwitchSequencer => "switch-sequencer",
        }
    }
}

/// How a program drives its pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Api {
    /// `Pipe`: blocks in `recv_batch`.
    Pipe,
    /// `EmbeddedPipe`: polls, and rests when there is nothing.
    Embedded,
}

/// Parameters of one process of a benchmark.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Job {
    pub role: Role,
    pub fabric: Fabric,
    pub location: Location,
    /// Sends through the public library, with this maximum of scatterings in flight; `None`: drives
    /// an endpoint itself, as fast as possible.
    pub window: Option<(u32, Api)>,
    /// The rival's method; `None`: our own protocol.
    pub method: Option<RivalMethod>,
    /// Uses the reliable service.
    pub is_reliable: bool,
    pub process: u32,
    pub processes: u32,
    /// Message size in bytes, at least 8.
    pub bytes: usize,
    /// Whether frames in shared memory bear checksums.
    pub has_checksums: bool,
    /// Sending time, in s.
    pub seconds: f64,
    /// Core to pin the process to.
    pub core: Option<usize>,
    /// Idle strategy: spin, yield, or back off to blocking.
    pub idle: String,
}

impl Job {
    /// Returns the idle strategy.
    pub(super) fn idle(&self) -> Idle {
        match self.idle.as_str() {
            "spin" => Idle::Spin,
            "yield" => Idle::Yield,
            _ => Idle::ADAPTIVE,
        }
    }
}

/// Result of one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Messages delivered, and the time from the first to the last.
    pub delivered: u64,
    pub seconds: f64,
    /// One-way latency in ns: p50, p99, max.
    pub latency_ns: Option<[u64; 3]>,
    /// Hash of the delivery order, taken every 10,000 deliveries.
    pub checkpoints: Vec<u64>,
    /// Own messages that were reported as not delivered.
    pub lost: u64,
    /// Own messages of which it was reported that they may or may not have been delivered.
    pub unknown: u64,
    /// CPU time of the measurement, in s.
    pub cpu_seconds: f64,
}

impl Outcome {
    /// Returns the number of own messages that were reported as lost or of unknown outcome.
    pub(crate) fn undelivered(&self) -> u64 {
        self.lost + self.unknown
    }
}
