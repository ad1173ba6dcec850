//! A bounded queue of slot numbers from one process to one other.
//!
//! The sender writes entries, each tagged with the lap of the ring it belongs to, so that the
//! receiver sees from the entry alone whether it is there: one cache line travels, not two. The
//! receiver publishes how far it has read; that gives ring room *and* slots back to the sender,
//! which remembers privately which slot stood in which entry. Neither believes more of the other
//! than that: entries and heads are checked, and a wrong one is ignored.
//!
//! Beside the ring lie a few *nooks*, each as large as a short frame. The entry at an index may say
//! that its frame is in the nook `index % cell_count`: so the receiver knows where the next short frame
//! will be before it is there, and fetches both at once.

use crate::sync::{AtomicU64, Ordering};

/// The shared part of a ring. `entries.len()` is a power of two.
#[derive(Clone, Copy)]
pub(crate) struct RingView<'a> {
    /// Entries below this index have been read. Written by the receiver.
    pub(crate) head: &'a AtomicU64,
    /// Written by the sender.
    pub(crate) entries: &'a [AtomicU64],
}

/// Where a frame lies in the sender's arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) slot: u32,
    pub(crate) bytes: u32,
}

/// Bits of an entry for the bytes, the slot, and the rest for the lap.
const LEN_BITS: u32 = 17;
const SLOT_BITS: u32 = 24;
const LAP_BITS: u32 = 64 - SLOT_BITS - LEN_BITS;
/// Laps count from 1 to this, over and over: 0 is an entry that was never written.
const LAPS: u64 = (1 << LAP_BITS) - 1;

/// Stands for a slot: the frame lies in the nook that belongs to the entry's index.
pub(crate) const INLINE: u32 = (1 << SLOT_BITS) - 1;
/// One more than the highest slot number that an entry can hold.
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
    fn at(&self, index: u64) -> &AtomicU64 {
        &self.entries[index as usize & (self.entries.len() - 1)]
    }

    fn lap(&self, index: u64) -> u64 {
        (index >> self.entries.len().trailing_zeros()) % LAPS + 1
    }

    /// The entry at `index`, if it has been written, with everything written before it.
    #[inline]
    fn read(&self, index: u64) -> Option<Entry> {
        Entry::from_word(self.at(index).load(Ordering::Acquire), self.lap(index))
    }

    /// The first index at or after `from` whose entry is not there.
    fn end_of_written(&self, from: u64) -> u64 {
        let capacity = self.entries.len() as u64;
        let written =
            (0..capacity).take_while(|ahead| self.read(from.wrapping_add(*ahead)).is_some());
        from.wrapping_add(written.count() as u64)
    }
}

/// The sender's end.
#[derive(Debug)]
pub(crate) struct Producer {
    /// What this sender put into each entry; `NO_SLOT` for one that is not to be given back.
    slots: Box<[u32]>,
    /// Entries below this have been given back.
    reclaimed: u64,
    /// Entries below this have been published.
    published: u64,
    /// Entries below this have been staged.
    tail: u64,
    /// Bytes of each staged entry, by the same index as `slots`.
    bytes: Box<[u32]>,
}

const NO_SLOT: u32 = u32::MAX;

impl Producer {
    /// Takes the ring over as a former life of this sender has left it. What the receiver may still
    /// read stays in flight, and `claim` is asked for each such slot whether it may be given back
    /// later. Entries that were written but never published are wiped.
    pub(crate) fn resume(view: RingView<'_>, mut claim: impl FnMut(Entry) -> bool) -> Self {
        let capacity = view.entries.len();
        let head = view.head.load(Ordering::Acquire);
        let tail = view.end_of_written(head);
        let mut slots = vec![NO_SLOT; capacity].into_boxed_slice();
        let mut index = head;
        while index != tail {
            if let Some(entry) = view.read(index)
                && claim(entry)
            {
                slots[index as usize & (capacity - 1)] = entry.slot;
            }
            index = index.wrapping_add(1);
        }
        while index != head.wrapping_add(capacity as u64) {
            view.at(index).store(0, Ordering::Relaxed);
            index = index.wrapping_add(1);
        }
        let bytes = vec![0; capacity].into_boxed_slice();
        Self { slots, bytes, reclaimed: head, published: tail, tail }
    }

    /// How many entries there are.
    pub(crate) fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Entries that the receiver has not given back.
    #[inline]
    pub(crate) fn in_flight(&self) -> usize {
        self.tail.wrapping_sub(self.reclaimed) as usize
    }

    /// The nook of the entry that is staged next, if nobody can be reading in it: `cell_count` entries
    /// back, whose nook it was, has been given back.
    #[inline]
    pub(crate) fn cell(&self, cell_count: usize) -> Option<usize> {
        (self.in_flight() < cell_count).then_some(self.tail as usize & (cell_count - 1))
    }

    /// Whether something is staged.
    pub(crate) fn is_staged(&self) -> bool {
        self.tail != self.published
    }

    /// Puts an entry behind all others, unseen by the receiver until [`Producer::publish`].
    /// Answers false when the ring is full.
    #[inline]
    pub(crate) fn stage(&mut self, entry: Entry) -> bool {
        if self.in_flight() >= self.slots.len() {
            return false;
        }
        let at = self.tail as usize & (self.slots.len() - 1);
        self.slots[at] = entry.slot;
        self.bytes[at] = entry.bytes;
        self.tail = self.tail.wrapping_add(1);
        true
    }

    /// Lets the receiver see everything staged. The first entry is written last: a receiver that
    /// looks at it all the time is disturbed once, and then finds all.
    #[inline]
    pub(crate) fn publish(&mut self, view: RingView<'_>) {
        let mut index = self.tail;
        while index != self.published {
            index = index.wrapping_sub(1);
            let at = index as usize & (self.slots.len() - 1);
            let entry = Entry { slot: self.slots[at], bytes: self.bytes[at] };
            view.at(index).store(entry.to_word(view.lap(index)), Ordering::Release);
        }
        self.published = self.tail;
    }

    /// Calls `release_slot` with every slot that the receiver has given back since. Answers how many
    /// entries there were. A head that cannot be is ignored.
    #[inline]
    pub(crate) fn reclaim(&mut self, view: RingView<'_>, release_slot: impl FnMut(u32)) -> usize {
        let head = view.head.load(Ordering::Acquire);
        let count = head.wrapping_sub(self.reclaimed);
        if count > self.published.wrapping_sub(self.reclaimed) {
            // Behind what was reclaimed by force, or nonsense.
            return 0;
        }
        self.release_until(head, release_slot);
        count as usize
    }

    /// Calls `release_slot` with every slot in flight: the receiver is dead, and whoever takes its place
    /// starts behind all of them.
    pub(crate) fn reclaim_all(&mut self, release_slot: impl FnMut(u32)) {
        debug_assert!(!self.is_staged(), "not within a burst");
        self.release_until(self.published, release_slot);
    }

    fn release_until(&mut self, end_of_written: u64, mut release_slot: impl FnMut(u32)) {
        while self.reclaimed != end_of_written {
            let at = self.reclaimed as usize & (self.slots.len() - 1);
            if !matches!(self.slots[at], NO_SLOT | INLINE) {
                release_slot(self.slots[at]);
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
    /// The receiver's end of a ring that nobody has used.
    pub(crate) fn fresh() -> Self {
        Self { head: 0, released: 0 }
    }

    /// Takes the ring over from a former life of this receiver: everything that is in it is
    /// skipped, and so given back.
    pub(crate) fn resume(view: RingView<'_>) -> Self {
        let head = view.end_of_written(view.head.load(Ordering::Acquire));
        view.head.store(head, Ordering::Release);
        Self { head, released: head }
    }

    /// The next entry, if it is there.
    #[inline]
    pub(crate) fn next(&mut self, view: RingView<'_>) -> Option<Entry> {
        let entry = view.read(self.head)?;
        self.head = self.head.wrapping_add(1);
        Some(entry)
    }

    /// The nook of the next entry, of `cell_count`.
    #[inline]
    pub(crate) fn cell(&self, cell_count: usize) -> usize {
        self.head as usize & (cell_count - 1)
    }

    /// Whether nothing is there.
    pub(crate) fn is_empty(&self, view: RingView<'_>) -> bool {
        view.read(self.head).is_none()
    }

    /// Gives back every slot read so far.
    #[inline]
    pub(crate) fn release(&mut self, view: RingView<'_>) {
        if self.released != self.head {
            self.released = self.head;
            view.head.store(self.head, Ordering::Release);
        }
    }
}
