//! What the threads that use an image share.

use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What the threads that use an image share.
#[derive(Debug, Default)]
pub struct Shared {
    /// All changes up to this position are in the files.
    pub applied: AtomicU64,
    /// Held while a block and its mark are written, which do not fit meanwhile.
    writing: Mutex<()>,
}

impl Shared {
    /// Waits until no block is being written, and lets none be written meanwhile.
    pub fn pause_writes(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
