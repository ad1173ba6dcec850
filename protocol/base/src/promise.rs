//! What a link promises about everything that follows on it.

use crate::Timestamp;

/// The two lower bounds that travel in every packet (design: ordering.md section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Promises {
    /// Best effort: every message that follows on this link has a timestamp at or above this.
    pub barrier: Timestamp,
    /// Reliable: every scattering that commits later has a timestamp at or above this.
    pub commit: Timestamp,
}

impl Promises {
    /// Both bounds at `ts`.
    pub const fn both(ts: Timestamp) -> Self {
        Self { barrier: ts, commit: ts }
    }

    /// The stronger promise for each bound.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { barrier: self.barrier.max(other.barrier), commit: self.commit.max(other.commit) }
    }

    /// The weaker promise for each bound: all that two links together can promise.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        Self { barrier: self.barrier.min(other.barrier), commit: self.commit.min(other.commit) }
    }
}
