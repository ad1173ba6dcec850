//! State of a worker process, as known to its parent.

use super::messages::Sample;

/// How far a process is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    #[default]
    Starting,
    Joined,
    /// All its messages have an outcome.
    Drained,
    Left,
    /// The process was killed.
    Dead,
}

/// State of a worker process, as known to its parent.
#[derive(Debug, Default)]
pub struct ProcessState {
    pub phase: Phase,
    /// Its last sample, without the logs and pauses.
    pub sample: Sample,
    /// All its latencies, once it has left.
    pub latencies: Vec<(u64, u64)>,
}
