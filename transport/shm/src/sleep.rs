//! Sleeping without lost wake-ups, and waking only sleeping processes.
//!
//! The sleeper announces its sleep and then checks for work once more; the waker publishes work and
//! then checks for a sleeper. With a full fence on both sides at least one of them sees the other.

use crate::sync::{AtomicU32, Ordering, fence};

/// The futex word of a process: 0 awake, [`ASLEEP`] asleep.
#[derive(Clone, Copy)]
pub(crate) struct FutexSlot<'a>(pub(crate) &'a AtomicU32);

/// The value of the word of a sleeping process.
pub(crate) const ASLEEP: u32 = 1;
const AWAKE: u32 = 0;

impl FutexSlot<'_> {
    /// Announces that this process sleeps. It must check for work once more, and may then block as
    /// long as the word holds [`ASLEEP`].
    pub(crate) fn prepare_sleep(self) {
        self.0.store(ASLEEP, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Marks this process as awake.
    pub(crate) fn finish_sleep(self) {
        self.0.store(AWAKE, Ordering::Relaxed);
    }

    /// Whether the process sleeps and this caller must wake it; at most one caller gets true. The
    /// work was published before, and [`fence_before_wake`] called.
    #[inline]
    pub(crate) fn take_wake(self) -> bool {
        self.0.load(Ordering::Relaxed) == ASLEEP && self.0.swap(AWAKE, Ordering::Relaxed) == ASLEEP
    }
}

/// Orders publishing work before checking for sleepers.
#[inline]
pub(crate) fn fence_before_wake() {
    fence(Ordering::SeqCst);
}
