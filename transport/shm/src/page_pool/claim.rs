//! Who may use a region again: its owner, when nobody reads in it.
//!
//! A reader is told which *generation* of a region holds what it is to read. It counts itself in,
//! and then looks whether the generation is still that one; the owner begins a new generation, and
//! then looks whether anybody is counted. With a full fence on both sides at least one of them sees
//! the other: so nobody reads what its owner writes, however late a reader comes, and whether the
//! others still count it as alive or not.

use crate::sync::{AtomicU64, Ordering, fence};

/// The words of one region.
#[derive(Clone, Copy)]
pub(crate) struct Claim<'a> {
    /// How many read in it.
    pub(crate) readers: &'a AtomicU64,
    /// Which use of it this is. Written by the owner.
    pub(crate) generation: &'a AtomicU64,
}

impl Claim<'_> {
    /// A reader: counts itself in, if the region still is of this generation. What the owner wrote
    /// before it told of the generation is seen, and stays as it is until [`Claim::release`].
    pub(crate) fn take(self, generation: u64) -> bool {
        self.readers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.generation.load(Ordering::Acquire) == generation {
            return true;
        }
        self.release();
        false
    }

    /// A reader has read what it wanted.
    pub(crate) fn release(self) {
        self.readers.fetch_sub(1, Ordering::Release);
    }

    /// The owner: begins a new generation, and answers which, if nobody reads in the region.
    pub(crate) fn renew(self) -> Option<u64> {
        let next = self.generation.load(Ordering::Relaxed).wrapping_add(1);
        self.generation.store(next, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        (self.readers.load(Ordering::Acquire) == 0).then_some(next)
    }
}
