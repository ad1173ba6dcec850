//! The reorder stage: from arrival order to the total order, in constant time a message.
//!
//! scattering → send → switch → receive → **[reorder]** → deliver
//!
//! A binary heap over all waiting messages pays for the number that wait: for the delivery delay.
//! Here an entry is put into a slot by its timestamp alone (`wheel.rs`); when the barrier reaches a
//! slot, its handful of entries is sorted (`sort.rs`) into the *run*, which is handed out by index.
//!
//! # Invariants
//! - Every entry of the run is below `run_end`, every entry of the wheel at or above it.
//! - `run_end` is at most one slot of the calendar above the barrier.

mod sort;
#[cfg(test)]
mod tests;
mod wheel;

use alloc::vec::Vec;

use onepipe_base::Timestamp;

use self::sort::{Keys, SORT_MAX};
use self::wheel::{NONE, Wheel};

/// Slots are 1 ns to 4 us wide: any narrower would not divide one message from the next, any wider
/// would save nothing at rates so low.
const WIDTH_LOG2_MAX: u32 = 12;
/// The width to begin with: fit for 10 M messages/s.
const WIDTH_LOG2_START: u32 = 10;
/// The width is reviewed when this many slots have been opened since the last time, or …
const REVIEW_SLOTS: usize = 64;
/// … this many entries popped, and in any case as many as must be moved for another width.
const REVIEW_ENTRIES: usize = 1024;

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
    fn key(&self) -> (Timestamp, u64) {
        (self.timestamp, self.order)
    }
}

/// A monotone priority queue of [`Entry`]s: nothing is inserted below a barrier already popped to.
///
/// Costs O(1) amortised an entry whatever the delay, the rate, or the distance ahead. Room for
/// entries is recycled: a steady state allocates nothing. Besides some 20 KiB it holds an entry and
/// four octets for each of the most entries that ever waited at once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reorder<T> {
    wheel: Wheel,
    /// The entries in the wheel, and room for more.
    entries: Vec<Entry<T>>,
    /// For each of `entries`, the next one in its slot or in `free`.
    links: Vec<u32>,
    free: u32,
    /// The slot in progress: ascending from `run_next` on, handed out before.
    run: Vec<Entry<T>>,
    run_next: usize,
    run_end: u64,
    /// The last barrier popped to.
    barrier: u64,
    len: usize,
    slots_opened: usize,
    entries_passed: usize,
}

impl<T: Copy> Reorder<T> {
    /// An empty stage whose barrier is the origin of time.
    pub fn new(config: ReorderConfig) -> Self {
        Self {
            wheel: Wheel::new(WIDTH_LOG2_START),
            entries: Vec::with_capacity(config.entries),
            links: Vec::with_capacity(config.entries),
            free: NONE,
            run: Vec::with_capacity(SORT_MAX),
            run_next: 0,
            run_end: 0,
            barrier: 0,
            len: 0,
            slots_opened: 0,
            entries_passed: 0,
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
        self.len += 1;
        if ts < self.run_end {
            return self.insert_into_run(entry);
        }
        let node = self.free;
        if node == NONE {
            return self.insert_into_new_room(entry);
        }
        self.free = self.links[node as usize];
        self.entries[node as usize] = entry;
        self.wheel.push(node, ts, &mut self.links);
    }

    /// The least entry, if it lies below `barrier`. The barrier never goes back.
    #[inline]
    pub fn pop(&mut self, barrier: Timestamp) -> Option<Entry<T>> {
        debug_assert!(barrier.as_ns() >= self.barrier, "the barrier went back");
        self.barrier = barrier.as_ns();
        if self.run_next == self.run.len() && !self.refill() {
            return None;
        }
        let entry = self.run[self.run_next];
        if entry.timestamp >= barrier {
            return None;
        }
        self.run_next += 1;
        self.len -= 1;
        Some(entry)
    }

    fn insert_into_run(&mut self, entry: Entry<T>) {
        if self.run.len() == self.run.capacity() {
            self.run.drain(..self.run_next);
            self.run_next = 0;
        }
        let mut at = self.run.len();
        self.run.push(entry);
        while at > self.run_next && entry.key() < self.run[at - 1].key() {
            self.run[at] = self.run[at - 1];
            at -= 1;
        }
        self.run[at] = entry;
    }

    #[cold]
    fn insert_into_new_room(&mut self, entry: Entry<T>) {
        let node = u32::try_from(self.entries.len()).unwrap_or(NONE);
        assert!(node != NONE, "more than 2^32 - 2 entries: the caller bounds them");
        self.entries.push(entry);
        self.links.push(NONE);
        self.wheel.push(node, entry.timestamp.as_ns(), &mut self.links);
    }

    /// Opens slots until the run has an entry, or the wheel has none below the barrier.
    #[inline]
    fn refill(&mut self) -> bool {
        while self.wheel.least() < self.barrier {
            if self.open() {
                return true;
            }
        }
        false
    }

    /// Opens the first slot: a narrow one into the run, a wide one into narrower ones. Answers
    /// whether the run has an entry now.
    fn open(&mut self) -> bool {
        let Some(slot) = self.wheel.take_first() else { return false };
        self.entries_passed += self.run.len();
        self.slots_opened += 1;
        self.run.clear();
        self.run_next = 0;
        if !slot.is_narrow {
            self.run_end = slot.start;
            self.scatter(slot.head);
            return false;
        }
        self.run_end = slot.start.saturating_add(1 << self.wheel.width_log2());
        self.sort(slot.head, slot.start);
        if self.slots_opened >= REVIEW_SLOTS || self.entries_passed >= REVIEW_ENTRIES {
            self.review_width();
        }
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

    /// Moves a chain of nodes into the empty run, sorted, and frees the nodes.
    #[inline]
    fn sort(&mut self, head: u32, start: u64) {
        let Self { entries, links, run, .. } = self;
        let mut last = head;
        if links[head as usize] == NONE {
            run.push(entries[head as usize]);
        } else {
            let mut keys = Keys::new();
            let mut nodes = [0; SORT_MAX];
            let mut count = 0;
            let mut node = head;
            while node != NONE && count < SORT_MAX {
                keys.set(count, entries[node as usize].timestamp.as_ns() - start);
                nodes[count] = node;
                count += 1;
                last = node;
                node = links[node as usize];
            }
            if node == NONE {
                let mut sorted = [0; SORT_MAX];
                let is_strict = keys.sort(count, &mut sorted);
                run.extend(
                    sorted[..count].iter().map(|&key| entries[nodes[sort::place(key)] as usize]),
                );
                if !is_strict {
                    run.sort_by_key(Entry::key);
                }
            } else {
                run.extend(nodes.iter().map(|&node| entries[node as usize]));
                while node != NONE {
                    run.push(entries[node as usize]);
                    last = node;
                    node = links[node as usize];
                }
                // Chains run from the newest to the oldest.
                run.reverse();
                run.sort_unstable_by_key(Entry::key);
            }
        }
        links[last as usize] = self.free;
        self.free = head;
    }

    /// Fits the width of the slots to the rate of messages, so that a slot holds a handful.
    #[cold]
    fn review_width(&mut self) {
        if self.entries_passed < self.len {
            return;
        }
        let mean = self.entries_passed / self.slots_opened;
        let width_log2 = self.wheel.width_log2();
        let better = match mean {
            0..6 => width_log2 + 1,
            6..20 => width_log2,
            _ => width_log2.saturating_sub((mean / 10).ilog2()),
        };
        self.slots_opened = 0;
        self.entries_passed = 0;
        if better != width_log2 && better <= WIDTH_LOG2_MAX {
            self.change_width(better);
        }
    }

    fn change_width(&mut self, width_log2: u32) {
        let mut all = NONE;
        while let Some(slot) = self.wheel.take_first() {
            let mut last = slot.head;
            while self.links[last as usize] != NONE {
                last = self.links[last as usize];
            }
            self.links[last as usize] = all;
            all = slot.head;
        }
        self.wheel.reset(self.run_end, width_log2);
        self.scatter(all);
    }
}
