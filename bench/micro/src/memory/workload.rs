//! What both sides do: which bytes they operate on, and what is recorded.

use std::time::Duration;

use onepipe::ProcessId;

use super::job::{Job, Outcome};
use crate::stopwatch::{Measurement, Stopwatch};

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

/// Returns the result of a client.
pub(super) fn outcome(stopwatch: Stopwatch, repeated: u64) -> Outcome {
    let Measurement { operations, seconds, latencies } = stopwatch.finish();
    Outcome { operations, seconds, latencies, repeated }
}
