//! The promise word: one word by which a process promises a lower bound of what it stamps.

use crate::sync::{AtomicU64, Ordering, fence};

/// The value of a promise word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// Not sending: anything stamped later is stamped with a clock read after this was stored.
    Idle,
    /// Sending: everything stamped is at or above this.
    Active(u64),
}

const IDLE: u64 = 0;
const NO_HOLD: u64 = 0;

/// The promise word of one process, written by that process only.
#[derive(Clone, Copy)]
pub(crate) struct PromiseWord<'a>(pub(crate) &'a AtomicU64);

impl PromiseWord<'_> {
    //= spec/ordering.md#R18
    /// Starts a burst in which everything is at or above `floor`. The clock may be read after this
    /// call.
    #[inline]
    pub(crate) fn announce(self, floor: u64) {
        self.raise(floor);
        // All processes must be able to see the word before the clock is read: a store followed by
        // a load is the one order that processors do not keep by themselves.
        fence(Ordering::SeqCst);
    }

    /// Raises the floor of what is still to be sent.
    #[inline]
    pub(crate) fn raise(self, floor: u64) {
        // A floor of 0 would read as idle; no clock shows 0.
        self.0.store(floor.max(1), Ordering::Release);
    }

    //= spec/ordering.md#R18
    /// Ends the burst. A process that reads this value sees everything published before.
    #[inline]
    pub(crate) fn set_idle(self) {
        self.0.store(IDLE, Ordering::Release);
    }

    /// Reads the word. The clock must have been read before, and [`fence_after_clock`] called.
    #[inline]
    pub(crate) fn load(self) -> Promise {
        match self.0.load(Ordering::Acquire) {
            IDLE => Promise::Idle,
            floor => Promise::Active(floor),
        }
    }
}

/// The timestamp of this process's oldest unresolved reliable scattering, beside the promise word.
/// Written by that process only, in a burst before the promise word says that the burst is over. So
/// a process that reads the promise word first and this word after it misses nothing stamped before
/// the read; what is stamped later is at or above the promise.
#[derive(Clone, Copy)]
pub(crate) struct CommitHold<'a>(pub(crate) &'a AtomicU64);

impl CommitHold<'_> {
    /// Publishes the timestamp; `None` if no scattering is unresolved.
    #[inline]
    pub(crate) fn store(self, since: Option<u64>) {
        self.0.store(since.map_or(NO_HOLD, |since| since.max(1)), Ordering::Release);
    }

    /// Reads the timestamp. The promise word must have been read before.
    #[inline]
    pub(crate) fn load(self) -> Option<u64> {
        match self.0.load(Ordering::Acquire) {
            NO_HOLD => None,
            since => Some(since),
        }
    }
}

/// Orders the clock reading before the reads of promise words.
#[inline]
pub(crate) fn fence_after_clock() {
    fence(Ordering::Acquire);
}
