//! The reorder stage: turns arrival order into the total order in constant time per message.
//!
//! scattering → send → switch → receive → `[reorder]` → deliver
//!
//! A binary heap over all waiting messages costs time proportional to the logarithm of their
//! number, which grows with the delivery delay. This stage instead puts an entry into a slot by its
//! timestamp alone (`wheel.rs`). When the barrier reaches a slot, its few entries are sorted
//! (`sort.rs`) into the *run*, from which they are delivered by index.
//!
//! # Invariants
//! - Every entry of the run is below `run_end`, every entry of the wheel at or above it.
//! - `run_end` is at most one slot of the calendar above the barrier.

mod check;
mod entry;
mod sort;
#[cfg(test)]
mod tests;
mod wheel;

use alloc::vec::Vec;

use onepipe_base::Timestamp;

pub use self::entry::{Entry, ReorderConfig};
use self::sort::{Keys, SORT_MAX};
use self::wheel::{NONE, Wheel};

/// Largest width of a slot, as a power of two of ns: slots are 1 ns to 4 us wide. Wider slots would
/// save nothing at the low rates that need them.
const WIDTH_LOG2_MAX: u32 = 12;
/// Initial width, suited to 10 M messages/s.
const WIDTH_LOG2_START: u32 = 10;
/// The width is adapted after this many entries have passed through slots, and after no fewer than
/// would have to move to other slots.
const ADAPT_ENTRIES: usize = 512;
/// An entry that is inserted into the run before more than this many others shows that the current
/// slot is too wide.
const SHIFT_MAX: usize = 64;
/// Factor, as a power of two, by which slots are then narrowed.
const NARROWING_LOG2: u32 = 4;

/// A monotone priority queue of [`Entry`]s: no entry is inserted below a barrier that was popped
/// to.
///
/// An operation costs O(1) amortised, whatever the delay, the rate or the distance into the future.
/// Storage is recycled: the steady state allocates nothing. Memory use is about 20 KiB, plus an
/// entry and four bytes for each of the highest number of entries that ever waited at once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reorder<T> {
    wheel: Wheel,
    /// Nodes: the entries in the wheel, and free ones.
    entries: Vec<Entry<T>>,
    /// For each node, the next node in its slot or in the free list.
    links: Vec<u32>,
    /// The first free node; `NONE` if there is none.
    free: u32,
    /// The current slot, sorted; entries before `run_next` were popped.
    run: Vec<Entry<T>>,
    run_next: usize,
    /// Upper bound (exclusive) of the timestamps of the run.
    run_end: u64,
    /// The last barrier popped to.
    barrier: u64,
    in_wheel: usize,
    /// Slots opened, and entries that passed through them, since the width was last considered.
    slots_opened: usize,
    entries_passed: usize,
}

impl<T: Copy> Reorder<T> {
    /// Creates an empty stage with the barrier 0.
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
            in_wheel: 0,
            slots_opened: 0,
            entries_passed: 0,
        }
    }

    /// Returns the number of waiting entries.
    pub fn len(&self) -> usize {
        self.in_wheel + self.run.len() - self.run_next
    }

    /// Returns whether no entry waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true only if every entry is after `key`, a timestamp and an order. May return false
    /// without such an entry.
    #[inline]
    pub fn is_after(&self, key: (Timestamp, u64)) -> bool {
        let ts = key.0.as_ns();
        self.wheel.least() > ts && self.run.get(self.run_next).is_none_or(|next| next.key() > key)
    }

    /// Inserts an entry at or above the last barrier popped to.
    #[inline]
    pub fn insert(&mut self, entry: Entry<T>) {
        let is_above = entry.timestamp.as_ns() >= self.barrier;
        debug_assert!(is_above, "the entry is below the barrier");
        self.reinsert(entry);
    }

    /// Inserts an entry that may be below the last barrier popped to, but is after every popped
    /// entry.
    #[inline]
    pub fn reinsert(&mut self, entry: Entry<T>) {
        let ts = entry.timestamp.as_ns();
        if ts < self.run_end {
            return self.insert_into_run(entry);
        }
        let node = self.free;
        if node == NONE {
            return self.insert_growing(entry);
        }
        self.free = self.links[node as usize];
        self.entries[node as usize] = entry;
        self.in_wheel += 1;
        self.wheel.push(node, ts, &mut self.links);
    }

    //= spec/ordering.md#R19
    /// Returns the first entry if it is below `barrier`, which must never decrease.
    #[inline]
    pub fn pop(&mut self, barrier: Timestamp) -> Option<Entry<T>> {
        debug_assert!(barrier.as_ns() >= self.barrier, "the barrier decreased");
        self.barrier = barrier.as_ns();
        loop {
            match self.run.get(self.run_next) {
                Some(entry) if entry.timestamp < barrier => {
                    self.run_next += 1;
                    return Some(*entry);
                }
                None if self.wheel.least() < self.barrier => self.open_slot(),
                _ => return None,
            }
        }
    }

    /// Returns the entries that follow the one popped last, if that was the first of its slot.
    #[inline]
    pub fn rest_of_fresh_run(&self) -> &[Entry<T>] {
        if self.run_next == 1 { &self.run[1..] } else { &[] }
    }

    // Not inlined, like `open_slot`, so that the frequent case can be: 15 % of the throughput.
    #[inline(never)]
    fn insert_into_run(&mut self, entry: Entry<T>) {
        if self.run.len() == self.run.capacity() && self.run_next >= self.run.len() / 2 {
            self.run.drain(..self.run_next);
            self.run_next = 0;
        }
        let end = self.run.len();
        let mut position = end;
        self.run.push(entry);
        while position > self.run_next && entry.key() < self.run[position - 1].key() {
            self.run[position] = self.run[position - 1];
            position -= 1;
        }
        self.run[position] = entry;
        if end - position > SHIFT_MAX {
            self.return_run();
        }
    }

    #[cold]
    fn insert_growing(&mut self, entry: Entry<T>) {
        let node = u32::try_from(self.entries.len()).unwrap_or(NONE);
        assert!(node != NONE, "more than 2^32 - 2 entries: the caller must bound them");
        self.entries.push(entry);
        self.links.push(NONE);
        self.in_wheel += 1;
        self.wheel.push(node, entry.timestamp.as_ns(), &mut self.links);
    }

    /// Opens the first slot: sorts a narrow one into the run, splits a wide one into narrower ones.
    #[inline(never)]
    fn open_slot(&mut self) {
        let Some(slot) = self.wheel.take_first() else { return };
        self.entries_passed += self.run.len();
        self.slots_opened += 1;
        self.run.clear();
        self.run_next = 0;
        if !slot.is_narrow {
            self.run_end = slot.start;
            return self.redistribute(slot.head);
        }
        self.run_end = slot.start.saturating_add(1 << self.wheel.width_log2());
        self.sort(slot.head, slot.start);
        self.in_wheel -= self.run.len();
        if self.entries_passed >= ADAPT_ENTRIES.max(self.in_wheel) {
            self.adapt_width();
        }
    }

    /// Puts a chain of nodes back into the wheel.
    fn redistribute(&mut self, mut node: u32) {
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
                    sorted[..count].iter().map(|&key| entries[nodes[sort::index(key)] as usize]),
                );
                if !is_strict {
                    // The keys hold timestamps only; entries with equal ones have an order, too.
                    run.sort_unstable_by_key(Entry::key);
                }
            } else {
                run.extend(nodes.iter().map(|&node| entries[node as usize]));
                while node != NONE {
                    run.push(entries[node as usize]);
                    last = node;
                    node = links[node as usize];
                }
                // Chains are ordered from the newest node to the oldest. Reversed, most are nearly
                // sorted already.
                run.reverse();
                run.sort_unstable_by_key(Entry::key);
            }
        }
        links[last as usize] = self.free;
        self.free = head;
    }

    /// Adapts the slot width to the message rate, so that a slot holds about ten entries.
    #[cold]
    fn adapt_width(&mut self) {
        let mean = self.entries_passed / self.slots_opened;
        let width_log2 = self.wheel.width_log2();
        let better = match mean {
            0..6 => (width_log2 + 1).min(WIDTH_LOG2_MAX),
            6..20 => width_log2,
            _ => width_log2.saturating_sub((mean / 10).ilog2()),
        };
        self.slots_opened = 0;
        self.entries_passed = 0;
        if better != width_log2 {
            self.change_width(better);
        }
    }

    /// Returns the rest of the run to the wheel, into narrower slots.
    #[cold]
    fn return_run(&mut self) {
        let rest = self.run_next..self.run.len();
        let first = self.run[self.run_next].timestamp.as_ns();
        // Entries may still be inserted from the barrier on, so the wheel must begin there.
        self.run_end = first.min(self.barrier);
        self.change_width(self.wheel.width_log2().saturating_sub(NARROWING_LOG2));
        for n in rest {
            self.reinsert(self.run[n]);
        }
        self.run.clear();
        self.run_next = 0;
    }

    /// Moves every entry of the wheel to slots of another width.
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
        self.redistribute(all);
    }
}
