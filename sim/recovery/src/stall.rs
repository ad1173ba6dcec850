//! Measures how long commit barriers stall.

use onepipe_base::Timestamp;
use onepipe_sim_engine::Instant;

/// Measures the stall of the commit barrier of one process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StallMeter {
    barrier: Option<Timestamp>,
    /// When the barrier changed last.
    changed_at: Instant,
    /// Start of the measurement, and the timestamp that the barrier has to pass.
    target: Option<(Instant, Timestamp)>,
    /// Longest time between two changes since the start of the measurement.
    stall_ps: u64,
    /// When the barrier passed the target.
    passed_at: Option<Instant>,
}

impl StallMeter {
    pub(crate) const NEW: Self = Self {
        barrier: None,
        changed_at: Instant::START,
        target: None,
        stall_ps: 0,
        passed_at: None,
    };

    /// Records the current barrier. Returns whether the barrier has just passed its target.
    #[inline]
    pub(crate) fn observe(&mut self, at: Instant, barrier: Option<Timestamp>) -> bool {
        if barrier == self.barrier {
            return false;
        }
        let unchanged_ps = at.since(self.changed_at);
        (self.barrier, self.changed_at) = (barrier, at);
        if self.passed_at.is_some() {
            return false;
        }
        let Some((_, target)) = self.target else { return false };
        self.stall_ps = self.stall_ps.max(unchanged_ps);
        let has_passed = barrier.is_some_and(|barrier| barrier > target);
        if has_passed {
            self.passed_at = Some(at);
        }
        has_passed
    }

    /// Starts the measurement at a failure; `target` is the time of the failure on a clock without
    /// error.
    pub(crate) fn begin(&mut self, at: Instant, target: Timestamp) {
        (self.target, self.stall_ps, self.passed_at) = (Some((at, target)), 0, None);
    }

    /// Whether the process has a barrier.
    pub(crate) fn has_barrier(&self) -> bool {
        self.barrier.is_some()
    }

    /// Returns the longest stall until the barrier passed its target, and the time from the failure
    /// to that, in ps. `None` if the barrier has not passed its target.
    pub(crate) fn measured(&self) -> Option<(u64, u64)> {
        let (failed_at, _) = self.target?;
        Some((self.stall_ps, self.passed_at?.since(failed_at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stall_spans_last_advance_to_passing_advance() {
        let (at, stamp) = (Instant::from_ps, |ns| Some(Timestamp::from_ns(ns)));
        let mut stall = StallMeter::NEW;
        stall.observe(at(100), stamp(10));
        stall.begin(at(150), Timestamp::from_ns(15));
        assert!(!stall.observe(at(200), stamp(10)) && !stall.observe(at(230), stamp(12)));
        assert_eq!(stall.measured(), None);
        assert!(stall.observe(at(900), stamp(16)));
        assert!(!stall.observe(at(2_900), stamp(17)), "later advances do not count");
        assert_eq!(stall.measured(), Some((670, 750)));
    }
}
