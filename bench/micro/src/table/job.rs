//! Input and output of one process of the benchmark of tables.

use std::time::Duration;

use onepipe::ProcessId;
use onepipe_table::Layout;
use serde::{Deserialize, Serialize};

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Role {
    /// A replica of the only shard.
    Server(u32),
    /// Calls the table.
    Client,
    /// The software switch.
    Switch,
}

/// How the table is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Protocol {
    /// By ordered operations on all replicas.
    Ordered,
    /// By fenced operations on the only replica.
    Fenced,
    /// A leader's program inserts and replicates; look-ups read the memory of the leader.
    Leader,
}

/// Parameters of one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Job {
    pub role: Role,
    pub protocol: Protocol,
    /// Whether the client inserts; otherwise it looks up.
    pub inserts: bool,
    pub replicas: u32,
    /// Address of the switch; `None`: shared memory.
    pub switch: Option<String>,
    /// Name of the fabric in shared memory.
    pub fabric: String,
    /// Length of a value in bytes.
    pub value_len: u32,
    /// Number of calls in flight.
    pub window: u32,
    /// Length of the measurement, in s.
    pub seconds: f64,
}

/// Limit on waits that only a hang reaches.
pub(super) const TIMEOUT: Duration = Duration::from_secs(20);
/// Limit on a call of our table, whose error says what is wrong before a wait ends.
pub(super) const CALL_LIMIT: Duration = Duration::from_secs(15);
/// The process whose memory alone rivals use, or whose program inserts.
pub(super) const LEADER: ProcessId = ProcessId(0);
/// Keys that are in the table at first.
pub(super) const KEYS: u64 = 1 << 16;
/// Nodes of the shard. A run that has used them ends early.
const NODES: u32 = 1 << 20;

impl Job {
    /// Most lists are empty or have one node, so that their length hardly depends on the number of
    /// insertions, of which the faster side makes more.
    pub(super) fn layout(&self) -> Layout {
        Layout { shards: 1, buckets: NODES, nodes: NODES, value_len: self.value_len }
    }

    /// Returns the number of insertions that the table has space for.
    pub(super) fn insertions_max(&self) -> u64 {
        u64::from(NODES) - KEYS - 1_024
    }

    pub(super) fn value(&self, key: u64) -> Vec<u8> {
        vec![key as u8; self.value_len as usize]
    }
}

/// Result of one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Outcome {
    /// Calls in the measurement, and its length in s.
    pub calls: u64,
    pub seconds: f64,
    /// Time from call to result in ns, and count.
    pub latencies: Vec<(u64, u64)>,
}
