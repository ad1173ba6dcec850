//! Locking and waiting that survive a panic of the other thread.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Locks `mutex`. A thread that panicked while holding the lock changed one field at a time, so the
/// value is consistent.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a notification for at most `timeout`.
pub(super) fn wait<'a, T>(
    condition: &Condvar,
    guard: MutexGuard<'a, T>,
    timeout: Duration,
) -> MutexGuard<'a, T> {
    let waited = condition.wait_timeout(guard, timeout);
    waited.unwrap_or_else(PoisonError::into_inner).0
}
