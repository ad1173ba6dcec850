//! What a link promises about all frames that follow on it.

use crate::Timestamp;

//= spec/ordering.md#R6
/// The two lower bounds that every packet carries (1Pipe sections 4 and 5: barrier and commit
/// barrier).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Promises {
    /// Best effort: every message that follows on this link has a timestamp at or above this.
    pub barrier: Timestamp,
    /// Reliable: every scattering that commits later has a timestamp at or above this.
    pub commit: Timestamp,
}

impl Promises {
    /// Returns both bounds at `ts`.
    pub const fn both(ts: Timestamp) -> Self {
        Self { barrier: ts, commit: ts }
    }

    /// Returns the stronger promise for each bound.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { barrier: self.barrier.max(other.barrier), commit: self.commit.max(other.commit) }
    }

    /// Returns the weaker promise for each bound: what two links promise together.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        Self { barrier: self.barrier.min(other.barrier), commit: self.commit.min(other.commit) }
    }

    /// Returns whether both bounds lie above `ts`, so that both services may deliver it.
    #[inline]
    #[must_use]
    pub fn have_passed(self, ts: Timestamp) -> bool {
        self.barrier > ts && self.commit > ts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_pass_a_timestamp_only_with_both_bounds() {
        let ts = Timestamp::from_ns;
        let passes = |barrier, commit| {
            Promises { barrier: ts(barrier), commit: ts(commit) }.have_passed(ts(5))
        };
        assert_eq!([passes(6, 6), passes(5, 6), passes(6, 5)], [true, false, false]);
    }
}
