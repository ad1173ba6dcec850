//! Up to where all replicas of a store have stored all writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use onepipe::Timestamp;

/// Timestamps below which the replicas of a store have stored all writes. After a loss of power the
/// logs complete each other, so no replica may drop a record that another one may not have stored.
#[derive(Debug)]
pub(crate) struct SafePoint {
    /// By replica, in ns; 0 if nothing is known.
    stored_below: Box<[AtomicU64]>,
    /// The last write before which records are to be dropped, in ns.
    awaited: AtomicU64,
}

/// A safe point, as one of its replicas uses it.
#[derive(Clone, Debug)]
pub(crate) struct OwnSafePoint {
    of_store: Arc<SafePoint>,
    replica: usize,
}

impl OwnSafePoint {
    /// Returns a new safe point for each of the `replicas` of a store.
    pub fn of_replicas(replicas: usize) -> impl Iterator<Item = Self> {
        let stored_below = (0..replicas).map(|_| AtomicU64::new(0)).collect();
        let of_store = Arc::new(SafePoint { stored_below, awaited: AtomicU64::new(0) });
        (0..replicas).map(move |replica| Self { of_store: Arc::clone(&of_store), replica })
    }

    /// Publishes that this replica has stored all writes to its shard below `at`.
    pub fn publish(&self, at: Timestamp) {
        // Orders the disk's answer before what another replica does when it reads this.
        self.of_store.stored_below[self.replica].store(at.as_ns(), Ordering::Release);
    }

    /// Returns the timestamp below which all replicas of all shards have stored all writes.
    pub fn get(&self) -> Timestamp {
        let all = self.of_store.stored_below.iter().map(|below| below.load(Ordering::Acquire));
        Timestamp::from_ns(all.min().unwrap_or(0))
    }

    /// Asks all replicas to store the writes at and below `at`, if their policy does not do so by
    /// itself.
    pub fn await_above(&self, at: Timestamp) {
        self.of_store.awaited.fetch_max(at.as_ns(), Ordering::Relaxed);
    }

    /// Returns whether a replica waits for this one, which has stored the writes below `below`.
    pub fn is_awaited(&self, below: Timestamp) -> bool {
        below.as_ns() <= self.of_store.awaited.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_minimum_of_all_replicas() {
        let at = Timestamp::from_ns;
        let replicas: Vec<OwnSafePoint> = OwnSafePoint::of_replicas(3).collect();
        replicas[0].publish(at(9));
        replicas[1].publish(at(7));
        assert_eq!(replicas[0].get(), at(0), "the last replica is not known");
        replicas[2].publish(at(8));
        assert_eq!(replicas[0].get(), at(7));
        assert!(!replicas[2].is_awaited(at(8)));
        replicas[0].await_above(at(8));
        assert!(replicas[2].is_awaited(at(8)) && !replicas[2].is_awaited(at(9)));
    }
}
