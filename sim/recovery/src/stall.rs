//! Measures how long commit barriers stall.

use onepipe_base::Timestamp;
use onepipe_sim_engine::Instant;

/// Measures the stall of the commit barrier of one process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StallMeter {
    barrier: Option<Timestamp>,
    changed: Instant,
    /// Start of the measurement, and the timestamp that the barrier has to pass.
    since: Option<(Instant, Timestamp)>,
    stall_ps: u64,
    passed: Option<Instant>,
}

impl StallMeter {
    pub(crate) const NEW: Self =
        Self { barrier: None, changed: Instant::START, since: None, stall_ps: 0, passed: None };

    /// Records the current barrier. Returns whether it has just passed the time of the failure.
    #[inline]
    pub(crate) fn observe(&mut self, at: Instant, barrier: Option<Timestamp>) -> bool {
        if barrier == self.barrier {
            return false;
        }
        let stood_ps = at.since(self.changed);
        (self.barrier, self.changed) = (barrier, at);
        let Some((_, moment)) = self.since.filter(|_| self.passed.is_none()) else { return false };
        self.stall_ps = self.stall_ps.max(stood_ps);
        let has_passed = barrier.is_some_and(|barrier| barrier > moment);
        if has_passed {
            self.passed = Some(at);
        }
        has_passed
    }

    /// Starts the measurement at a failure; `moment` is the reading of a clock without error.
    pub(crate) fn begin(&mut self, at: Instant, moment: Timestamp) {
        (self.since, self.stall_ps, self.passed) = (Some((at, moment)), 0, None);
    }

    /// Whether the process has a barrier.
    pub(crate) fn has_barrier(&self) -> bool {
        self.barrier.is_some()
    }

    /// Returns the longest stall until the barrier passed the time of the failure, and the time
    /// from the failure until then, in ps.
    pub(crate) fn measured(&self) -> Option<(u64, u64)> {
        let (since, _) = self.since?;
        Some((self.stall_ps, self.passed?.since(since)))
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
