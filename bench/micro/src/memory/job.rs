//! Input and output of one process of the benchmark of registered memory.

use serde::{Deserialize, Serialize};

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Role {
    /// Owns a region; its application does nothing.
    Owner,
    /// Operates on the region of the owner.
    Client,
    /// Owns memory; its application receives requests, executes them and replies.
    Server,
    /// Sends requests to the server.
    Requester,
    /// The software switch.
    Switch,
}

/// What is done with the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Kind {
    /// Reads the given number of bytes.
    Read,
    /// Writes the given number of bytes.
    Write,
    /// Adds to a word.
    FetchAdd,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Read, Self::Write, Self::FetchAdd];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::FetchAdd => "fetch-add",
        }
    }

    /// Returns whether the operation changes the memory: then its request is sent reliably.
    pub(super) const fn writes(self) -> bool {
        !matches!(self, Self::Read)
    }
}

/// Parameters of one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Job {
    pub role: Role,
    pub kind: Kind,
    /// Address of the switch; `None`: shared memory.
    pub switch: Option<String>,
    /// Name of the fabric in shared memory.
    pub fabric: String,
    /// Bytes that are read or written by an operation, at least 8.
    pub bytes: usize,
    /// Number of operations in flight.
    pub window: u32,
    /// Length of the measurement, in s.
    pub seconds: f64,
}

/// Result of one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Outcome {
    /// Operations in the measurement, and its length in s.
    pub operations: u64,
    pub seconds: f64,
    /// Time from submission to result in ns, and count.
    pub latencies: Vec<(u64, u64)>,
    /// Requests that were repeated after a loss.
    pub repeated: u64,
}
