//! Blocking one thread until another has something for it.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

/// Where one thread at a time waits. Waking costs a fence and a look when nobody does; the lock is
/// taken only to fall asleep and to wake.
#[derive(Debug, Default)]
pub(crate) struct Waiter {
    is_waiting: AtomicBool,
    thread: Mutex<Option<Thread>>,
}

impl Waiter {
    /// Blocks until woken, for at most `timeout`, unless `is_ready` says that there is no need to.
    /// What it looks at must be published before [`Waiter::wake`]. May return early for no reason.
    pub(crate) fn wait(&self, timeout: Duration, is_ready: impl FnOnce() -> bool) {
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread::current());
        self.is_waiting.store(true, Ordering::Relaxed);
        // Say so, then look once more; the waker publishes, then looks here. With a full fence on
        // both sides at least one of them sees the other.
        fence(Ordering::SeqCst);
        if !is_ready() {
            thread::park_timeout(timeout);
        }
        self.is_waiting.store(false, Ordering::Relaxed);
    }

    /// Wakes whoever waits.
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
