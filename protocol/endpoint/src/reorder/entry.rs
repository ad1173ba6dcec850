//! Entries of the reorder stage.

use onepipe_base::Timestamp;
use onepipe_base::mistake::{Mistake, makes};

/// Size of a [`Reorder`](super::Reorder).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReorderConfig {
    /// Initial capacity in entries. More are admitted, at the cost of an allocation when a new
    /// maximum is reached. 0 to 2^32 − 2, default 1,024.
    pub entries: usize,
}

impl Default for ReorderConfig {
    fn default() -> Self {
        Self { entries: 1024 }
    }
}

/// A message that waits for its turn in the total order, ascending `(timestamp, order)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry<T> {
    /// Timestamp of its scattering.
    pub timestamp: Timestamp,
    /// Order among messages with the same timestamp: sender, then index in the scattering.
    pub order: u64,
    /// Value with which the caller finds the message again.
    pub value: T,
}

impl<T> Entry<T> {
    #[inline]
    pub(super) fn key(&self) -> (Timestamp, u64) {
        let order = if makes(Mistake::NoTieBreak) { 0 } else { self.order };
        (self.timestamp, order)
    }
}
