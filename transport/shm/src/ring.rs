//! A bounded single-producer, single-consumer queue of slot numbers between two processes.
//!
//! The sender writes entries, each tagged with the lap of the ring it belongs to, so that the
//! receiver sees from the entry alone whether it is valid: one cache line travels, not two. The
//! receiver publishes its head; that returns ring capacity *and* slots to the sender, which
//! remembers privately which slot was in which entry. Neither trusts the other further than that:
//! entries and heads are checked, and invalid ones are ignored.
//!
//! Beside the ring lie a few *inline cells*, each as large as a short frame. The entry at an index
//! may say that its frame is in cell `index % cells`: so the receiver knows where the next short
//! frame will be before it is sent, and prefetches cell and entry at once.

use crate::sync::{AtomicU64, Ordering};

/// The shared part of a ring. `entries.len()` is a power of two.
#[derive(Clone, Copy)]
pub(crate) struct RingView<'a> {
    /// Entries below this index have been released by the receiver, which writes it.
    pub(crate) head: &'a AtomicU64,
    /// Written by the sender.
    pub(crate) entries: &'a [AtomicU64],
}

/// The location of a frame in the sender's arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) slot: u32,
    pub(crate) bytes: u32,
}

/// Bits of an entry for the length in bytes and for the slot; the rest is the lap.
const LEN_BITS: u32 = 17;
const SLOT_BITS: u32 = 24;
const LAP_BITS: u32 = 64 - SLOT_BITS - LEN_BITS;
/// Laps count from 1 to this and wrap: 0 is an entry that was never written.
const LAPS: u64 = (1 << LAP_BITS) - 1;

/// In place of a slot: the frame lies in the inline cell of the entry's index.
pub(crate) const INLINE: u32 = (1 << SLOT_BITS) - 1;
/// One more than the highest slot number of an entry.
pub(crate) const SLOTS_MAX: u32 = INLINE;

impl Entry {
    fn to_word(self, lap: u64) -> u64 {
        (lap << SLOT_BITS | u64::from(self.slot)) << LEN_BITS | u64::from(self.bytes)
    }

    fn from_word(word: u64, lap: u64) -> Option<Self> {
        if word >> (SLOT_BITS + LEN_BITS) != lap {
            return None;
        }
        let slot = (word >> LEN_BITS) as u32 & ((1 << SLOT_BITS) - 1);
        Some(Self { slot, bytes: word as u32 & ((1 << LEN_BITS) - 1) })
    }
}

impl RingView<'_> {
    fn word(&self, index: u64) -> &AtomicU64 {
        &self.entries[index as usize & (self.entries.len() - 1)]
    }

    fn lap(&self, index: u64) -> u64 {
        (index >> self.entries.len().trailing_zeros()) % LAPS + 1
    }

    /// Returns the entry at `index` if it has been published, with everything written before it.
    #[inline]
    fn read(&self, index: u64) -> Option<Entry> {
        Entry::from_word(self.word(index).load(Ordering::Acquire), self.lap(index))
    }

    /// Returns the first index at or after `from` without a published entry.
    fn end_of_published(&self, from: u64) -> u64 {
        let capacity = self.entries.len() as u64;
        let published_entries =
            (0..capacity).take_while(|ahead| self.read(from.wrapping_add(*ahead)).is_some());
        from.wrapping_add(published_entries.count() as u64)
    }
}

/// The sender's end.
#[derive(Debug)]
pub(crate) struct Producer {
    /// The staged and published entries, with `NO_SLOT` for a slot that must not be released.
    entries: Box<[Entry]>,
    /// Entries below this have been reclaimed.
    reclaimed: u64,
    /// Entries below this have been published.
    published: u64,
    /// Entries below this have been staged.
    tail: u64,
}

const NO_SLOT: u32 = u32::MAX;

impl Producer {
    /// Makes the sender's end of an unused ring of `capacity` entries.
    pub(crate) fn new(capacity: usize) -> Self {
        let entries = vec![Entry { slot: NO_SLOT, bytes: 0 }; capacity].into_boxed_slice();
        Self { entries, reclaimed: 0, published: 0, tail: 0 }
    }

    /// Takes the ring over from a previous incarnation of this sender. What the receiver may still
    /// read stays in flight; `claim` decides for each such slot whether it may be released later.
    /// Entries that were written but never published are erased.
    pub(crate) fn resume(view: RingView<'_>, mut claim: impl FnMut(Entry) -> bool) -> Self {
        let capacity = view.entries.len();
        let head = view.head.load(Ordering::Acquire);
        let tail = view.end_of_published(head);
        let mut producer = Self::new(capacity);
        let mut index = head;
        while index != tail {
            if let Some(entry) = view.read(index)
                && claim(entry)
            {
                producer.entries[index as usize & (capacity - 1)] = entry;
            }
            index = index.wrapping_add(1);
        }
        while index != head.wrapping_add(capacity as u64) {
            view.word(index).store(0, Ordering::Relaxed);
            index = index.wrapping_add(1);
        }
        Self { reclaimed: head, published: tail, tail, ..producer }
    }

    /// Returns the number of entries of the ring.
    pub(crate) fn capacity(&self) -> usize {
        self.entries.len()
    }

    /// Returns the number of entries that the receiver has not released.
    #[inline]
    pub(crate) fn in_flight(&self) -> usize {
        self.tail.wrapping_sub(self.reclaimed) as usize
    }

    /// Returns the inline cell of the entry staged next, if the receiver cannot be reading it: the
    /// entry that used it before has been released.
    #[inline]
    pub(crate) fn cell(&self, cell_count: usize) -> Option<usize> {
        (self.in_flight() < cell_count).then_some(self.tail as usize & (cell_count - 1))
    }

    /// Whether entries are staged and not published.
    pub(crate) fn is_staged(&self) -> bool {
        self.tail != self.published
    }

    /// Appends an entry, invisible to the receiver until [`Producer::publish`]. Returns false when
    /// the ring is full.
    #[inline]
    pub(crate) fn stage(&mut self, entry: Entry) -> bool {
        if self.in_flight() >= self.entries.len() {
            return false;
        }
        self.entries[self.tail as usize & (self.entries.len() - 1)] = entry;
        self.tail = self.tail.wrapping_add(1);
        true
    }

    /// Publishes all staged entries. Writes the first one last: a receiver that polls it is
    /// disturbed once, and then finds all.
    #[inline]
    pub(crate) fn publish(&mut self, view: RingView<'_>) {
        let mut index = self.tail;
        while index != self.published {
            index = index.wrapping_sub(1);
            let entry = self.entries[index as usize & (self.entries.len() - 1)];
            view.word(index).store(entry.to_word(view.lap(index)), Ordering::Release);
        }
        self.published = self.tail;
    }

    /// Calls `release_slot` with every slot that the receiver has released since the last call.
    /// Returns the number of entries reclaimed. Ignores an impossible head.
    #[inline]
    pub(crate) fn reclaim(&mut self, view: RingView<'_>, release_slot: impl FnMut(u32)) -> usize {
        let head = view.head.load(Ordering::Acquire);
        let count = head.wrapping_sub(self.reclaimed);
        if count > self.published.wrapping_sub(self.reclaimed) {
            // The head lies below what `reclaim_all` has reclaimed, or is corrupt.
            return 0;
        }
        self.release_until(head, release_slot);
        count as usize
    }

    /// Calls `release_slot` with every slot in flight, because the receiver is dead and its
    /// successor skips all of them.
    pub(crate) fn reclaim_all(&mut self, release_slot: impl FnMut(u32)) {
        debug_assert!(!self.is_staged(), "must not be called within a burst");
        self.release_until(self.published, release_slot);
    }

    fn release_until(&mut self, end: u64, mut release_slot: impl FnMut(u32)) {
        while self.reclaimed != end {
            let slot = self.entries[self.reclaimed as usize & (self.entries.len() - 1)].slot;
            if !matches!(slot, NO_SLOT | INLINE) {
                release_slot(slot);
            }
            self.reclaimed = self.reclaimed.wrapping_add(1);
        }
    }
}

/// The receiver's end.
#[derive(Debug)]
pub(crate) struct Consumer {
    head: u64,
    released: u64,
}

impl Consumer {
    /// Makes the receiver's end of an unused ring.
    pub(crate) fn new() -> Self {
        Self { head: 0, released: 0 }
    }

    /// Takes the ring over from a previous incarnation of this receiver: skips and so releases
    /// everything in it.
    pub(crate) fn resume(view: RingView<'_>) -> Self {
        let head = view.end_of_published(view.head.load(Ordering::Acquire));
        view.head.store(head, Ordering::Release);
        Self { head, released: head }
    }

    /// Takes the next entry, if it has been published.
    #[inline]
    pub(crate) fn next(&mut self, view: RingView<'_>) -> Option<Entry> {
        let entry = view.read(self.head)?;
        self.head = self.head.wrapping_add(1);
        Some(entry)
    }

    /// Returns the inline cell of the next entry.
    #[inline]
    pub(crate) fn cell(&self, cell_count: usize) -> usize {
        self.head as usize & (cell_count - 1)
    }

    /// Whether no entry is published.
    pub(crate) fn is_empty(&self, view: RingView<'_>) -> bool {
        view.read(self.head).is_none()
    }

    /// Releases all entries read so far.
    #[inline]
    pub(crate) fn release(&mut self, view: RingView<'_>) {
        if self.released != self.head {
            self.released = self.head;
            view.head.store(self.head, Ordering::Release);
        }
    }
}
