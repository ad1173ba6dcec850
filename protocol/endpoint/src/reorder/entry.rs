//! What waits to be put into order.

use onepipe_base::Timestamp;
use onepipe_base::mistake::{Mistake, makes};

/// How to size a [`Reorder`](super::Reorder).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReorderConfig {
    /// Make room for this many entries at once; more are admitted, at the price of an allocation
    /// when a new maximum is reached. 0 to 2^32 − 2, default 1,024.
    pub entries: usize,
}

impl Default for ReorderConfig {
    fn default() -> Self {
        Self { entries: 1024 }
    }
}

/// A message that waits for its place in the total order, ascending `(timestamp, order)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry<T> {
    /// The timestamp of its scattering.
    pub timestamp: Timestamp,
    /// What orders messages of one timestamp: sender `<< 16 |` index in the scattering.
    pub order: u64,
    /// Whatever the caller needs to find the message again.
    pub value: T,
}

impl<T> Entry<T> {
    #[inline]
    pub(super) fn key(&self) -> (Timestamp, u64) {
        let order = if makes(Mistake::NoTieBreak) { 0 } else { self.order };
        (self.timestamp, order)
    }
}
