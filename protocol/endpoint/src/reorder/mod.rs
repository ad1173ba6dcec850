//! The reorder stage: from arrival order to the total order, in constant time a message.
//!
//! scattering → send → switch → receive → **[reorder]** → deliver
//!
//! A binary heap over all waiting messages would pay for the number that wait: the delivery delay.
//! Here a message is put into a slot of a wheel by its timestamp alone (`wheel.rs`), slots are
//! sorted one at a time when the barrier reaches them (`sort.rs`), and the messages of the slot in
//! progress, the *run*, are handed out by index.
//!
//! # Invariants
//! - Everything in the run is below `run_end`; everything in the wheel is at or above it.
//! - `run_end` never lies beyond a slot that is still occupied.
//! - An entry that is far ahead only ever moves to finer slots: at most once per level.

mod sort;
#[cfg(test)]
mod tests;
mod wheel;

use alloc::vec::Vec;

use onepipe_base::Timestamp;

use self::sort::{SORT_MAX, rank_sort};
use self::wheel::{NONE, Wheel};

/// A run that has taken this many insertions since its slot was opened is too wide for the present
/// rate of messages: it goes back to the wheel, into finer slots.
const RUN_INSERTS_MAX: u32 = 256;

/// How to size a [`Reorder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReorderConfig {
    /// Make room for this many entries at once; more are admitted, at the price of an allocation
    /// when a new maximum is reached. 0 to 2^32 − 2, default 1,024.
    pub entries: usize,
}

impl Default for ReorderConfig {
    fn default() -> Self {
        Self { entries: 1024 }
    }
}

/// A message that waits for its place in the total order, ascending `(timestamp, order)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry<T> {
    /// The timestamp of its scattering.
    pub timestamp: Timestamp,
    /// What orders messages of one timestamp: sender `<< 16 |` index in the scattering.
    pub order: u64,
    /// Whatever the caller needs to find the message again.
    pub value: T,
}

impl<T> Entry<T> {
    fn key(&self) -> (u64, u64) {
        (self.timestamp.as_ns(), self.order)
    }
}

/// A monotone priority queue of [`Entry`]s: nothing is inserted below a barrier already popped to.
///
/// Costs O(1) amortised an entry whatever the delay, the rate, or the distance ahead; room for
/// entries is recycled, so that a steady state allocates nothing. Holds 36 octets and a value for
/// each of the most entries that ever waited at once, and 10 KiB.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reorder<T> {
    entries: Vec<Entry<T>>,
    /// For each of `entries`, the next one in its slot or on the free list.
    links: Vec<u32>,
    free: u32,
    wheel: Wheel,
    /// Indices into `entries`, ascending by key from `run_next` on.
    run: Vec<u32>,
    run_next: usize,
    run_end: u64,
    run_inserts: u32,
    barrier: u64,
    len: usize,
}

impl<T: Copy> Reorder<T> {
    /// An empty stage whose barrier is the origin of time.
    pub fn new(config: ReorderConfig) -> Self {
        Self {
            entries: Vec::with_capacity(config.entries),
            links: Vec::with_capacity(config.entries),
            free: NONE,
            wheel: Wheel::new(),
            run: Vec::with_capacity(config.entries.max(SORT_MAX)),
            run_next: 0,
            run_end: 0,
            run_inserts: 0,
            barrier: 0,
            len: 0,
        }
    }

    /// How many entries wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes an entry at or above the last barrier popped to, however far ahead.
    #[inline]
    pub fn insert(&mut self, entry: Entry<T>) {
        let ts = entry.timestamp.as_ns();
        debug_assert!(ts >= self.barrier, "an entry below the barrier was not refused");
        let node = self.store(entry);
        self.len += 1;
        if ts < self.run_end {
            self.insert_into_run(node);
        } else {
            self.wheel.push(node, ts, &mut self.links);
        }
    }

    /// The least entry, if it lies below `barrier`. The barrier never goes back.
    #[inline]
    pub fn pop(&mut self, barrier: Timestamp) -> Option<Entry<T>> {
        let barrier = barrier.as_ns();
        debug_assert!(barrier >= self.barrier, "the barrier went back");
        self.barrier = barrier;
        if self.run_next == self.run.len() && !self.refill() {
            return None;
        }
        let node = self.run[self.run_next];
        let entry = self.entries[node as usize];
        if entry.timestamp.as_ns() >= barrier {
            return None;
        }
        self.run_next += 1;
        self.links[node as usize] = self.free;
        self.free = node;
        self.len -= 1;
        Some(entry)
    }

    #[inline]
    fn store(&mut self, entry: Entry<T>) -> u32 {
        let node = self.free;
        if node == NONE {
            return self.grow(entry);
        }
        self.free = self.links[node as usize];
        self.entries[node as usize] = entry;
        node
    }

    #[cold]
    fn grow(&mut self, entry: Entry<T>) -> u32 {
        let node = u32::try_from(self.entries.len()).expect("the caller bounds the entries");
        assert!(node != NONE, "the caller bounds the entries");
        self.entries.push(entry);
        self.links.push(NONE);
        node
    }

    /// Opens slots until the run has an entry, or none can lie below the barrier.
    #[inline]
    fn refill(&mut self) -> bool {
        while self.wheel.least() < self.barrier {
            if self.open() {
                return true;
            }
        }
        false
    }

    /// Opens the first slot: into the run if it is small, into finer slots if not. Answers whether
    /// the run has an entry now.
    fn open(&mut self) -> bool {
        let slot = self.wheel.take_first();
        self.run.clear();
        self.run_next = 0;
        self.run_inserts = 0;
        let mut nodes = [0; SORT_MAX];
        let mut keys = [i32::MAX; SORT_MAX];
        let mut count = 0;
        let mut node = slot.head;
        while node != NONE && count < SORT_MAX {
            let ahead = self.entries[node as usize].timestamp.as_ns() - slot.start;
            nodes[count] = node;
            keys[count] = sort::key(ahead, count);
            count += 1;
            node = self.links[node as usize];
        }
        if node != NONE && slot.width_log2 > 0 {
            self.run_end = slot.start;
            self.scatter(slot.head);
            return false;
        }
        self.run_end = slot.end();
        if node == NONE && slot.width_log2 <= sort::WIDTH_LOG2_MAX {
            self.run.resize(count, 0);
            if rank_sort(&nodes[..count], &keys, &mut self.run) {
                return true;
            }
        } else {
            let mut node = slot.head;
            while node != NONE {
                self.run.push(node);
                node = self.links[node as usize];
            }
        }
        let entries = &self.entries;
        self.run.sort_unstable_by_key(|&node| entries[node as usize].key());
        true
    }

    /// Puts a chain of nodes back into the wheel.
    fn scatter(&mut self, mut node: u32) {
        while node != NONE {
            let next = self.links[node as usize];
            self.wheel.push(node, self.entries[node as usize].timestamp.as_ns(), &mut self.links);
            node = next;
        }
    }

    /// Inserts into the slot in progress.
    fn insert_into_run(&mut self, node: u32) {
        self.run_inserts += 1;
        let key = self.entries[node as usize].key();
        let mut at = self.run.len();
        while at > self.run_next && self.entries[self.run[at - 1] as usize].key() > key {
            at -= 1;
        }
        self.run.insert(at, node);
        if self.run_inserts == RUN_INSERTS_MAX {
            self.spill();
        }
    }

    /// Gives the run up: its entries go back to the wheel, which is positioned as finely as the
    /// barrier allows.
    #[cold]
    fn spill(&mut self) {
        let pending = &self.run[self.run_next..];
        let first = *pending.first().expect("called behind an insertion");
        let least = self.entries[first as usize].timestamp.as_ns().min(self.barrier);
        self.wheel.advance(least);
        self.run_end = least;
        for &node in pending {
            self.wheel.push(node, self.entries[node as usize].timestamp.as_ns(), &mut self.links);
        }
        self.run.clear();
        self.run_next = 0;
    }
}
