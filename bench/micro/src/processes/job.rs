//! What one process of a benchmark is told to do, and what it answers.

use serde::{Deserialize, Serialize};

/// What carries the frames.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Fabric {
    /// Shared memory, by name.
    Shm(String),
    /// UDP through the software switch at this address, with frames of at most this length.
    Udp { switch: String, frame_len: usize },
}

/// One process's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Role {
    /// Sends to process 1 as fast as it can.
    Flood,
    /// Takes what process 0 floods.
    Sink,
    /// Everybody floods everybody, and takes what comes.
    AllToAll,
    /// Sends one message to process 1, waits for the answer, sends the next.
    Ping,
    /// Answers pings.
    Pong,
    /// The software switch; ends when nothing has come for a second.
    Switch,
    /// A rival's sequencer; ends as the switch does.
    Sequencer,
}

/// By which rule messages are put in order, if not by ours (`onepipe_bench_rivals`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rule {
    /// None: as they come.
    Unordered,
    /// A token goes round.
    Token,
    /// Logical clocks.
    Lamport,
    /// A process of its own numbers everything.
    Sequencer,
    /// The switch numbers everything. UDP only.
    SwitchSequencer,
}

impl Rule {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Unordered, Self::Token, Self::Lamport, Self::Sequencer, Self::SwitchSequencer];

    /// Its name.
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

/// One process of a benchmark.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Job {
    pub role: Role,
    pub fabric: Fabric,
    /// The rival's rule; `None`: ours.
    pub rule: Option<Rule>,
    /// Whether everything is sent reliably.
    pub is_reliable: bool,
    pub process: u32,
    pub processes: u32,
    /// Bytes of a message, 8 at least.
    pub bytes: usize,
    /// How long to send.
    pub seconds: f64,
    /// Which core to stay on.
    pub core: Option<usize>,
    /// Spin, yield, or back off to blocking.
    pub idle: String,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Messages delivered, and the time from the first to the last.
    pub delivered: u64,
    pub seconds: f64,
    /// One-way latency in ns: p50, p99, max.
    pub latency_ns: Option<[u64; 3]>,
    /// A hash over the order of deliveries, taken at every 10,000th.
    pub checkpoints: Vec<u64>,
    /// Messages of its own that were reported as not delivered.
    pub failed: u64,
    /// Processor time that the measurement took.
    pub cpu_seconds: f64,
}
