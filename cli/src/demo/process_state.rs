//! State of a worker process, as known to its parent.

use super::log::StreamFaults;
use super::messages::Sample;
use super::pauses::Pauses;

/// State of one process.
#[derive(Debug, Default)]
pub struct ProcessState {
    /// Its last sample.
    pub last_sample: Sample,
    /// Time and deliveries of the sample at the previous tick, from which the rate is computed.
    pub previous_tick: Option<(u64, u64)>,
    /// Recent deliveries per second.
    pub rate_per_s: f64,
    /// The longest latency so far.
    pub latency_max_ns: u64,
    /// All its latencies, once it has left.
    pub latencies: Vec<(u64, u64)>,
    /// Pauses between its best-effort deliveries.
    pub pauses: Pauses,
    /// Pauses between the deliveries of its own messages to itself: pauses of its sending.
    pub own_pauses: Pauses,
    /// Pauses between its reliable deliveries.
    pub reliable_pauses: Pauses,
    /// Faults of its reliable stream.
    pub reliable_faults: StreamFaults,
    /// Whether it was killed.
    pub is_dead: bool,
    pub has_joined: bool,
    pub has_drained: bool,
    pub has_left: bool,
}
