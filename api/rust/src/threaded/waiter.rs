//! Blocks one thread until another one wakes it.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

/// A wait point for one thread at a time. Waking without a waiting thread costs a fence and a load;
/// the lock is taken only to sleep and to wake.
#[derive(Debug, Default)]
pub(crate) struct Waiter {
    is_waiting: AtomicBool,
    thread: Mutex<Option<Thread>>,
}

impl Waiter {
    /// Blocks until woken, for at most `timeout`, unless `is_ready`. The state that it checks must
    /// be published before [`Waiter::wake`]. May return early (spurious wake-up).
    pub(crate) fn wait(&self, timeout: Duration, is_ready: impl FnOnce() -> bool) {
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread::current());
        self.is_waiting.store(true, Ordering::Relaxed);
        // Announce the wait, then check once more; the waker publishes, then checks for a waiter.
        // With a full fence on both sides at least one of them sees the other.
        fence(Ordering::SeqCst);
        if !is_ready() {
            thread::park_timeout(timeout);
        }
        self.is_waiting.store(false, Ordering::Relaxed);
    }

    /// Wakes the waiting thread, if there is one.
    #[inline]
    pub(crate) fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.is_waiting.load(Ordering::Relaxed) {
            self.unpark();
        }
    }

    #[cold]
    fn unpark(&self) {
        if self.is_waiting.swap(false, Ordering::Relaxed)
            && let Some(thread) = &*self.thread.lock().unwrap_or_else(PoisonError::into_inner)
        {
            thread.unpark();
        }
    }
}
