//! Reuse of regions: only by their owner, and only while no reader uses them.
//!
//! A reader knows which *generation* of a region holds its page. It increments the reader count and
//! then checks that the generation is still the same; the owner begins a new generation and then
//! checks that the count is zero. With a full fence on both sides at least one of them sees the
//! other: so no process reads what the owner rewrites, however late a reader comes, and even if
//! other processes take that reader for dead.

use crate::sync::{AtomicU64, Ordering, fence};

/// The words of one region.
#[derive(Clone, Copy)]
pub(crate) struct Claim<'a> {
    /// Number of readers that hold the region.
    pub(crate) readers: &'a AtomicU64,
    /// Counts the owner's attempts to reuse or free the region. Written by the owner only.
    pub(crate) generation: &'a AtomicU64,
}

impl Claim<'_> {
    /// Reader: claims the region if it still is of this generation. What the owner wrote before it
    /// published the generation is visible, and stays unchanged until [`Claim::release`].
    pub(crate) fn take(self, generation: u64) -> bool {
        self.readers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.generation.load(Ordering::Acquire) == generation {
            return true;
        }
        self.release();
        false
    }

    /// Reader: ends a claim.
    pub(crate) fn release(self) {
        self.readers.fetch_sub(1, Ordering::Release);
    }

    /// Owner: begins a new generation; returns it if no reader uses the region.
    pub(crate) fn renew(self) -> Option<u64> {
        let next = self.generation.load(Ordering::Relaxed).wrapping_add(1);
        self.generation.store(next, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        (self.readers.load(Ordering::Acquire) == 0).then_some(next)
    }
}
