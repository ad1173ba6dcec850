//! How a client runs.

/// How a client runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientOptions {
    /// Number of replies of each shard after which a write is complete; all replicas that are up if
    /// there are fewer. With a durable store a write survives the failure of all processes if it is
    /// stored by all. Default: all.
    pub acks_min: usize,
    /// Whether replicas have logs: then each replica gets all parts of a write, so that logs
    /// complete each other after a loss of power. Otherwise it gets the part of its shard alone,
    /// unless replicas say that some have logs. Default true.
    pub is_durable: bool,
    /// Time after which a read is repeated, and replicas are asked for the reply to a write, in ns,
    /// until a response time was measured. Also the interval at which a shard of which no replica
    /// is up is searched for one that was admitted again. Default 100 ms.
    pub timeout_ns: u64,
    /// Lower limit on that time, in ns, when response times are known: it follows them by RFC 6298.
    /// The time doubles with each repetition, up to the 16-fold. Default 1 ms.
    pub timeout_min_ns: u64,
    /// Number of attempts at a snapshot read after which it becomes a strict one: as long as its
    /// keys are written, each attempt may find no timestamp that is exact at all shards. Default 3.
    pub snapshot_attempts_max: u32,
    /// Limit on unfinished transactions. Default 4,096.
    pub open_max: usize,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            acks_min: usize::MAX,
            is_durable: true,
            timeout_ns: 100_000_000,
            timeout_min_ns: 1_000_000,
            snapshot_attempts_max: 3,
            open_max: 4_096,
        }
    }
}
