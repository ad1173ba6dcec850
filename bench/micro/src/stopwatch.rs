//! Measures operations of one process for a given time.

use anyhow::Result;
use hdrhistogram::Histogram;

use crate::light::{counts, monotonic_ns};

/// Counts operations and their latencies.
pub(crate) struct Stopwatch {
    begin_ns: u64,
    end_ns: u64,
    submitted: u64,
    completed: u64,
    last_ns: u64,
    histogram: Histogram<u64>,
}

/// What was measured.
pub(crate) struct Measurement {
    pub operations: u64,
    /// Length of the measurement, in s.
    pub seconds: f64,
    /// Time from submission to result in ns, and count.
    pub latencies: Vec<(u64, u64)>,
}

impl Stopwatch {
    /// Starts a measurement of this length, in s.
    pub(crate) fn start(seconds: f64) -> Result<Self> {
        let begin_ns = monotonic_ns();
        let end_ns = begin_ns + (seconds * 1e9) as u64;
        let histogram = Histogram::new(3)?;
        Ok(Self { begin_ns, end_ns, submitted: 0, completed: 0, last_ns: begin_ns, histogram })
    }

    /// Returns whether more operations are to be submitted.
    pub(crate) fn is_running(&self) -> bool {
        self.last_ns < self.end_ns
    }

    /// Returns the number of operations submitted so far.
    pub(crate) fn submitted(&self) -> u64 {
        self.submitted
    }

    /// Counts an operation, and returns the time.
    pub(crate) fn submit(&mut self) -> u64 {
        self.submitted += 1;
        monotonic_ns()
    }

    /// Records an operation that was submitted at `began_ns`.
    pub(crate) fn complete(&mut self, began_ns: u64) -> Result<()> {
        self.last_ns = monotonic_ns();
        self.completed += 1;
        self.histogram.record(self.last_ns.saturating_sub(began_ns))?;
        Ok(())
    }

    pub(crate) fn finish(self) -> Measurement {
        Measurement {
            operations: self.completed,
            seconds: (self.last_ns - self.begin_ns) as f64 / 1e9,
            latencies: counts(&self.histogram),
        }
    }
}
