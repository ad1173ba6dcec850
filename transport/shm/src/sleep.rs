//! Going to sleep without missing anything, and waking only who sleeps.
//!
//! The sleeper says that it sleeps, then looks once more; the waker publishes, then looks whether
//! anybody sleeps. With a full fence on both sides at least one of them sees the other.

use crate::sync::{AtomicU32, Ordering, fence};

/// The word that a sleeping process waits on: 0 awake, [`ASLEEP`] asleep.
#[derive(Clone, Copy)]
pub(crate) struct FutexSlot<'a>(pub(crate) &'a AtomicU32);

/// What the word says of a sleeper.
pub(crate) const ASLEEP: u32 = 1;
const AWAKE: u32 = 0;

impl FutexSlot<'_> {
    /// Says that this process sleeps. It must look for work once more, and may then block for as
    /// long as the word says so.
    pub(crate) fn prepare_sleep(self) {
        self.0.store(ASLEEP, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Says that this process is awake, whoever woke it.
    pub(crate) fn finish_sleep(self) {
        self.0.store(AWAKE, Ordering::Relaxed);
    }

    /// Whether the process must be woken, by the one who is told so. What it is woken for was
    /// published before, and [`fence_before_wake`] called.
    #[inline]
    pub(crate) fn take_wake(self) -> bool {
        self.0.load(Ordering::Relaxed) == ASLEEP && self.0.swap(AWAKE, Ordering::Relaxed) == ASLEEP
    }
}

/// Stands between publishing and looking who sleeps.
#[inline]
pub(crate) fn fence_before_wake() {
    fence(Ordering::SeqCst);
}
