//! Settings and counters of registered memory.

use onepipe_memory::{ClientOptions, ClientStats, OwnerOptions, OwnerStats};

/// Settings of registered memory: limits of its owners, time-outs and limits of its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryOptions {
    /// Settings for requests of other processes to the regions of this one. The limit on the
    /// results of a request is never above the longest message that can be sent.
    pub owner: OwnerOptions,
    /// Settings for requests of this process. Completions that were not taken count as requests in
    /// flight. `timeout_min_ns` is 1 ms by default here.
    pub client: ClientOptions,
}

/// Lower limit on the time after which a reply counts as lost, in ns: that of probes of messages. A
/// process of an operating system may be off its core for a millisecond, and a question then only
/// adds to its work.
const TIMEOUT_MIN_NS: u64 = 1_000_000;

impl Default for MemoryOptions {
    fn default() -> Self {
        let client = ClientOptions { timeout_min_ns: TIMEOUT_MIN_NS, ..ClientOptions::default() };
        Self { owner: OwnerOptions::default(), client }
    }
}

/// Counters of registered memory since joining.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Requests of other processes, and of this one to its own regions.
    pub owner: OwnerStats,
    /// Requests of this process.
    pub client: ClientStats,
    /// Messages for the node that are truncated, or of an unknown kind.
    pub malformed: u64,
}
