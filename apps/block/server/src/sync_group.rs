//! One `fdatasync` for all threads that wait for one.

use std::io;
use std::sync::{Condvar, Mutex, PoisonError};

/// Groups the synchronisations of a file.
///
/// After a failed `fdatasync` the system drops what it could not write, and the next call succeeds.
/// So no synchronisation succeeds any more, until the file is opened again.
#[derive(Default)]
pub struct SyncGroup {
    state: Mutex<State>,
    /// Signalled when a synchronisation is complete.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Number of synchronisations that have begun.
    begun: u64,
    /// All synchronisations up to this number are complete.
    completed: u64,
    is_running: bool,
    has_failed: bool,
}

/// Why data is not durable.
pub enum SyncError {
    /// This call failed.
    Now(io::Error),
    /// An earlier one failed.
    Earlier,
}

impl SyncGroup {
    /// Returns whether a synchronisation has failed.
    pub fn has_failed(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).has_failed
    }

    /// Waits for a synchronisation that began after this call, and runs it, if no other thread
    /// does.
    ///
    /// # Errors
    /// If it, or an earlier one, has failed.
    pub fn sync(&self, run: impl Fn() -> io::Result<()>) -> Result<(), SyncError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // One that runs now may have begun before the caller's writes.
        let wanted = state.begun + 1;
        loop {
            if state.has_failed {
                return Err(SyncError::Earlier);
            }
            if state.completed >= wanted {
                return Ok(());
            }
            if state.is_running {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.is_running = true;
            state.begun += 1;
            drop(state);
            let result = run();
            state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.is_running = false;
            state.completed = state.begun;
            state.has_failed |= result.is_err();
            self.changed.notify_all();
            result.map_err(SyncError::Now)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Arc, Barrier};
    use std::thread;

    use super::*;

    #[test]
    fn waits_for_one_that_began_after_the_call() {
        let group = Arc::new(SyncGroup::default());
        let runs = Arc::new(AtomicU32::new(0));
        let (entered, leave) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let first = {
            let (group, runs) = (Arc::clone(&group), Arc::clone(&runs));
            let (entered, leave) = (Arc::clone(&entered), Arc::clone(&leave));
            thread::spawn(move || {
                let run = || {
                    entered.wait();
                    leave.wait();
                    runs.fetch_add(1, Ordering::SeqCst);
                    Ok(())
                };
                group.sync(run).is_ok()
            })
        };
        entered.wait();
        let later: Vec<_> = (0..4)
            .map(|_| {
                let (group, runs) = (Arc::clone(&group), Arc::clone(&runs));
                thread::spawn(move || {
                    let done = group.sync(|| {
                        runs.fetch_add(1, Ordering::SeqCst);
                        Ok(())
                    });
                    // The first one alone does not suffice: it began before this call.
                    done.is_ok() && runs.load(Ordering::SeqCst) >= 2
                })
            })
            .collect();
        leave.wait();
        assert!(first.join().expect("no panic"));
        assert!(later.into_iter().all(|thread| thread.join().expect("no panic")));
    }

    #[test]
    fn fails_for_ever_after_a_failure() {
        let group = SyncGroup::default();
        assert!(group.sync(|| Ok(())).is_ok());
        let failed = group.sync(|| Err(io::ErrorKind::StorageFull.into()));
        assert!(matches!(failed, Err(SyncError::Now(_))));
        assert!(matches!(group.sync(|| Ok(())), Err(SyncError::Earlier)));
        assert!(group.has_failed());
    }
}
