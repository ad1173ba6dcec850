//! Buffer occupancy: I11.

use onepipe_base::ProcessId;

use crate::violation::{Rule, ViolationKind, Violations};

/// Checks one kind of buffer at all processes.
#[derive(Debug)]
pub struct BufferLevels {
    buffer: &'static str,
    max: u64,
    peak: u64,
    violations: Violations,
}

impl BufferLevels {
    /// Creates a checker of buffers named `buffer` with capacity `max`.
    pub fn new(buffer: &'static str, max: u64) -> Self {
        Self { buffer, max, peak: 0, violations: Violations::default() }
    }

    //= spec/ordering.md#R32
    /// Records that the buffer of `process` holds `level`.
    #[inline]
    pub fn observe(&mut self, process: ProcessId, level: u64, at_ns: u64) {
        self.peak = self.peak.max(level);
        if level > self.max {
            let kind =
                ViolationKind::Overfull { process, buffer: self.buffer, level, max: self.max };
            self.violations.add(Rule::I11, at_ns, kind);
        }
    }

    /// Returns a checker of the same buffers at some of the processes, for [`BufferLevels::merge`].
    #[must_use]
    pub fn part(&self) -> Self {
        Self::new(self.buffer, self.max)
    }

    /// Adds what another checker of the same buffers has observed.
    pub fn merge(&mut self, part: &Self) {
        self.peak = self.peak.max(part.peak);
        self.violations.merge(&part.violations);
    }

    /// Returns the highest level observed.
    pub fn peak(&self) -> u64 {
        self.peak
    }

    /// Returns the violations.
    pub fn violations(&self) -> &Violations {
        &self.violations
    }
}
