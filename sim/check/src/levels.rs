//! Buffer occupancy: I11.

use onepipe_base::ProcessId;

use crate::violation::{Rule, Seen, Violations};

/// Checks one kind of buffer at all processes.
#[derive(Debug)]
pub struct Levels {
    buffer: &'static str,
    max: u64,
    highest: u64,
    violations: Violations,
}

impl Levels {
    /// Creates a checker of buffers named `buffer` with capacity `max`.
    pub fn new(buffer: &'static str, max: u64) -> Self {
        Self { buffer, max, highest: 0, violations: Violations::default() }
    }

    /// Records that the buffer of `process` holds `level`.
    #[inline]
    pub fn seen(&mut self, process: ProcessId, level: u64, at_ns: u64) {
        self.highest = self.highest.max(level);
        if level > self.max {
            let seen = Seen::Overfull { process, buffer: self.buffer, level, max: self.max };
            self.violations.add(Rule::I11, at_ns, seen);
        }
    }

    /// Returns the highest level observed.
    pub fn highest(&self) -> u64 {
        self.highest
    }

    /// Returns the violations.
    pub fn violations(&self) -> &Violations {
        &self.violations
    }
}
