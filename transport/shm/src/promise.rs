//! The promise line: one word by which a process tells all others what it will stamp with.

use crate::sync::{AtomicU64, Ordering, fence};

/// What a process's line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// It is not sending. Whatever it sends next, it will read the clock after this was seen.
    Idle,
    /// It is sending, and everything of it is at or above this.
    Active(u64),
}

const IDLE: u64 = 0;
const NOTHING: u64 = 0;

/// The line of one process. Only that process writes it.
#[derive(Clone, Copy)]
pub(crate) struct PromiseWord<'a>(pub(crate) &'a AtomicU64);

impl PromiseWord<'_> {
    /// Says that from now on things are sent, all of them at or above `floor`. The clock may be
    /// read after this.
    #[inline]
    pub(crate) fn announce(self, floor: u64) {
        self.raise(floor);
        // The line must be seen by all before the clock is read: a store, then a load of the
        // clock, is the one order that a processor does not keep by itself.
        fence(Ordering::SeqCst);
    }

    /// Says that what is still to be sent is at or above `floor`.
    #[inline]
    pub(crate) fn raise(self, floor: u64) {
        // A floor of 0 would read as idle; nobody's clock was ever there.
        self.0.store(floor.max(1), Ordering::Release);
    }

    /// Says that nothing is being sent. Everything published before is seen by whoever sees this.
    #[inline]
    pub(crate) fn set_idle(self) {
        self.0.store(IDLE, Ordering::Release);
    }

    /// What the line says. The clock must have been read before, and [`fence_after_clock`] called.
    #[inline]
    pub(crate) fn load(self) -> Promise {
        match self.0.load(Ordering::Acquire) {
            IDLE => Promise::Idle,
            floor => Promise::Active(floor),
        }
    }
}

/// The word beside the line by which a process tells from when on its reliable scatterings are not
/// settled. Only that process writes it, in a burst before the line says that the burst is over: so
/// who looks at the line first, and at this word after it, misses nothing that was stamped before
/// the look; and what is stamped later is at or above what the line promises.
#[derive(Clone, Copy)]
pub(crate) struct CommitHold<'a>(pub(crate) &'a AtomicU64);

impl CommitHold<'_> {
    /// Says from when on; `None`: nothing is open.
    #[inline]
    pub(crate) fn store(self, since: Option<u64>) {
        self.0.store(since.map_or(NOTHING, |since| since.max(1)), Ordering::Release);
    }

    /// From when on. The line must have been looked at before.
    #[inline]
    pub(crate) fn load(self) -> Option<u64> {
        match self.0.load(Ordering::Acquire) {
            NOTHING => None,
            since => Some(since),
        }
    }
}

/// Stands between reading the clock and looking at lines: the looks may not be moved up.
#[inline]
pub(crate) fn fence_after_clock() {
    fence(Ordering::Acquire);
}
