//! What both sides do: which bytes they operate on, for how long, and what is recorded.

use std::time::Duration;

use anyhow::Result;
use hdrhistogram::Histogram;
use onepipe::ProcessId;

use super::job::{Job, Outcome};
use crate::light::{counts, monotonic_ns};

/// The process that has the memory. The other one operates on it.
pub(super) const OWNER: ProcessId = ProcessId(0);
/// Limit on waits that only a hang reaches.
pub(super) const TIMEOUT: Duration = Duration::from_secs(20);
/// Operations go to this number of positions in turn, each of the length of an operation.
const POSITIONS: u64 = 64;

/// Returns the length of the memory in bytes.
pub(super) fn memory_len(job: &Job) -> usize {
    POSITIONS as usize * cell_len(job)
}

/// Returns the offset of an operation in the memory.
pub(super) fn offset(job: &Job, number: u64) -> u64 {
    number % POSITIONS * cell_len(job) as u64
}

/// Returns the distance of two positions: words have offsets that are multiples of 8.
fn cell_len(job: &Job) -> usize {
    job.bytes.next_multiple_of(8)
}

/// Measures operations for a given time.
pub(super) struct Stopwatch {
    begin_ns: u64,
    end_ns: u64,
    submitted: u64,
    completed: u64,
    last_ns: u64,
    histogram: Histogram<u64>,
}

impl Stopwatch {
    pub(super) fn start(job: &Job) -> Result<Self> {
        let begin_ns = monotonic_ns();
        let end_ns = begin_ns + (job.seconds * 1e9) as u64;
        let histogram = Histogram::new(3)?;
        Ok(Self { begin_ns, end_ns, submitted: 0, completed: 0, last_ns: begin_ns, histogram })
    }

    /// Returns whether more operations are to be submitted.
    pub(super) fn is_running(&self) -> bool {
        self.last_ns < self.end_ns
    }

    /// Returns the number of operations submitted so far.
    pub(super) fn submitted(&self) -> u64 {
        self.submitted
    }

    /// Counts an operation, and returns the time.
    pub(super) fn submit(&mut self) -> u64 {
        self.submitted += 1;
        monotonic_ns()
    }

    /// Records an operation that was submitted at `began_ns`.
    pub(super) fn complete(&mut self, began_ns: u64) -> Result<()> {
        self.last_ns = monotonic_ns();
        self.completed += 1;
        self.histogram.record(self.last_ns.saturating_sub(began_ns))?;
        Ok(())
    }

    pub(super) fn outcome(self, repeated: u64) -> Outcome {
        Outcome {
            operations: self.completed,
            seconds: (self.last_ns - self.begin_ns) as f64 / 1e9,
            latencies: counts(&self.histogram),
            repeated,
        }
    }
}
