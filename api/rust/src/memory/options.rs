//! Settings and counters of registered memory.

use onepipe_memory::{ClientOptions, ClientStats, OwnerOptions, OwnerStats};

/// Settings of registered memory: limits of its owners, time-outs and limits of its clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryOptions {
    /// Settings for requests of other processes to the regions of this one. The limit on the
    /// results of a request is never above the longest message that can be sent.
    pub owner: OwnerOptions,
    /// Settings for requests of this process. Completions that were not taken count as requests in
    /// flight.
    pub client: ClientOptions,
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
