//! Sleeping without lost wake-ups, and waking only sleeping processes.
//!
//! The sleeper announces its sleep and then checks for work once more; the waker publishes work and
//! then checks for a sleeper. With a full fence on both sides at least one of them sees the other.

use crate::sync::{AtomicU32, Ordering, fence};

/// The futex word of a process: 0 awake, else [`ASLEEP`] or [`ASLEEP_APART`].
#[derive(Clone, Copy)]
pub(crate) struct FutexSlot<'a>(pub(crate) &'a AtomicU32);

/// The value of the word of a sleeping process.
pub(crate) const ASLEEP: u32 = 1;
/// The same while a thread waits that does not drive the process. If the driving thread sleeps
/// meanwhile, the other one, which is about to block, finds another value and does not: so a single
/// wake-up never reaches the wrong one of two.
pub(crate) const ASLEEP_APART: u32 = 2;
const AWAKE: u32 = 0;

impl FutexSlot<'_> {
    /// Announces that this process sleeps. It must check for work once more, and may then block as
    /// long as the word holds `value`.
    pub(crate) fn prepare_sleep(self, value: u32) {
        self.0.store(value, Ordering::Relaxed);
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
        self.0.load(Ordering::Relaxed) != AWAKE && self.0.swap(AWAKE, Ordering::Relaxed) != AWAKE
    }
}

/// Orders publishing work before checking for sleepers.
#[inline]
pub(crate) fn fence_before_wake() {
    fence(Ordering::SeqCst);
}
