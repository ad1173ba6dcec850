//! The event queue: a timing wheel with a heap behind its horizon.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use crate::Instant;

/// A slot spans 2^SLOT_BITS ps = 4.1 ns: a few dozen events in a saturated fabric of 32 hosts.
const SLOT_BITS: u32 = 12;
/// The wheel spans SLOTS slots = 16.8 us: a round trip. What lies further away are timers, few.
const SLOTS: u64 = 4096;
/// No node of the slab.
const NIL: u32 = u32::MAX;

/// Events in the order of their instants; simultaneous ones in the order of their scheduling.
///
/// Costs O(1) amortised an event that lies within the wheel. The slots are lists in one slab whose
/// free places are reused last-in-first-out, so that the memory in use stays in the cache, and
/// nothing is allocated in the steady state.
#[derive(Debug)]
pub struct Queue<E> {
    /// Events of the slots up to `cursor`, latest first.
    active: Vec<Entry<E>>,
    /// The slot that `active` was filled from, counted from the start of time.
    cursor: u64,
    /// For each slot of the wheel the first node of its list.
    heads: Vec<u32>,
    /// For each slot of the wheel whether it has a list.
    occupied: Vec<u64>,
    nodes: Vec<Node<E>>,
    free: u32,
    /// Events in the wheel.
    near: usize,
    /// Events at or behind the horizon, `cursor + SLOTS`.
    far: BinaryHeap<Entry<E>>,
    scheduled: u64,
    now: Instant,
}

impl<E: Copy> Queue<E> {
    /// A queue at the start of time, empty.
    pub fn new() -> Self {
        Self {
            active: Vec::new(),
            cursor: 0,
            heads: vec![NIL; SLOTS as usize],
            occupied: vec![0; SLOTS as usize / 64],
            nodes: Vec::new(),
            free: NIL,
            near: 0,
            far: BinaryHeap::new(),
            scheduled: 0,
            now: Instant::START,
        }
    }

    /// The instant of the last event handed out.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// How many events wait.
    pub fn len(&self) -> usize {
        self.active.len() + self.near + self.far.len()
    }

    /// Whether no event waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Schedules `event` for `at`, which is not before [`Queue::now`].
    #[inline]
    pub fn schedule(&mut self, at: Instant, event: E) {
        debug_assert!(at >= self.now, "an event in the past");
        let entry = Entry { at: at.as_ps(), number: self.scheduled, event };
        self.scheduled += 1;
        let slot = entry.slot();
        if slot <= self.cursor {
            // Rare: less than a slot ahead. Later ones are in front.
            let place = self.active.partition_point(|held| held.key() > entry.key());
            self.active.insert(place, entry);
        } else if slot < self.cursor + SLOTS {
            self.hang(entry);
        } else {
            self.far.push(entry);
        }
    }

    /// Takes out the next event if it is due at or before `limit`.
    #[inline]
    pub fn next_until(&mut self, limit: Instant) -> Option<(Instant, E)> {
        if self.active.is_empty() && !self.advance() {
            return None;
        }
        let at = self.active.last().expect("advance leaves something").at;
        if at > limit.as_ps() {
            return None;
        }
        let entry = self.active.pop().expect("seen above");
        self.now = Instant::from_ps(at);
        Some((self.now, entry.event))
    }

    /// Hangs an entry into its slot of the wheel.
    #[inline]
    fn hang(&mut self, entry: Entry<E>) {
        let index = (entry.slot() % SLOTS) as usize;
        let node = Node { entry, next: self.heads[index] };
        let place = self.free;
        if place == NIL {
            assert!(self.nodes.len() < NIL as usize, "four billion events wait");
            self.heads[index] = self.nodes.len() as u32;
            self.nodes.push(node);
        } else {
            self.free = self.nodes[place as usize].next;
            self.nodes[place as usize] = node;
            self.heads[index] = place;
        }
        self.occupied[index / 64] |= 1 << (index % 64);
        self.near += 1;
    }

    /// Moves the cursor to the next slot that has events and makes them active. Answers whether
    /// there are any.
    fn advance(&mut self) -> bool {
        self.cursor = if self.near > 0 {
            self.cursor + self.gap()
        } else if let Some(first) = self.far.peek() {
            first.slot()
        } else {
            return false;
        };
        self.unhang();
        while self.far.peek().is_some_and(|first| first.slot() < self.cursor + SLOTS) {
            let entry = self.far.pop().expect("peeked");
            if entry.slot() == self.cursor {
                self.active.push(entry);
            } else {
                self.hang(entry);
            }
        }
        self.active.sort_unstable_by_key(|entry| Reverse(entry.key()));
        true
    }

    /// Slots from the cursor to the next one of the wheel that has events. There is one.
    fn gap(&self) -> u64 {
        let start = (self.cursor + 1) % SLOTS;
        let words = self.occupied.len();
        let mut word = (start / 64) as usize;
        let mut bits = self.occupied[word] & (u64::MAX << (start % 64));
        for _ in 0..=words {
            if bits != 0 {
                let found = word as u64 * 64 + u64::from(bits.trailing_zeros());
                return 1 + (found + SLOTS - start) % SLOTS;
            }
            word = (word + 1) % words;
            bits = self.occupied[word];
        }
        unreachable!("near > 0, so some slot has a list")
    }

    /// Makes the cursor's list active.
    fn unhang(&mut self) {
        let index = (self.cursor % SLOTS) as usize;
        let mut place = std::mem::replace(&mut self.heads[index], NIL);
        self.occupied[index / 64] &= !(1 << (index % 64));
        while place != NIL {
            let node = &mut self.nodes[place as usize];
            self.active.push(node.entry);
            let next = std::mem::replace(&mut node.next, self.free);
            self.free = place;
            self.near -= 1;
            place = next;
        }
    }
}

impl<E: Copy> Default for Queue<E> {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry<E> {
    at: u64,
    number: u64,
    event: E,
}

impl<E> Entry<E> {
    #[inline]
    fn key(&self) -> u128 {
        (u128::from(self.at) << 64) | u128::from(self.number)
    }

    #[inline]
    fn slot(&self) -> u64 {
        self.at >> SLOT_BITS
    }
}

/// The earliest is the greatest: the order that a max-heap wants.
impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<E> Eq for Entry<E> {}

#[derive(Clone, Copy, Debug)]
struct Node<E> {
    entry: Entry<E>,
    next: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn simultaneous_events_come_in_the_order_of_scheduling_on_both_sides_of_the_horizon() {
        for at in [0, 7, 1 << 13, 1 << 40] {
            let mut queue = Queue::new();
            (0..100).for_each(|n| queue.schedule(Instant::from_ps(at), n));
            let order: Vec<i32> =
                std::iter::from_fn(|| queue.next_until(Instant::END)).map(|(_, n)| n).collect();
            assert_eq!(order, (0..100).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_slab_does_not_grow_in_the_steady_state() {
        let mut queue = Queue::new();
        (0..1_000u64).for_each(|n| queue.schedule(Instant::from_ps(n * 900), n));
        let mut random = crate::Random::named(1, "queue", 0);
        for _ in 0..100_000 {
            let (at, n) = queue.next_until(Instant::END).expect("a thousand circulate");
            queue.schedule(at.after(random.below(2_000_000)), n);
        }
        assert_eq!(queue.len(), 1_000);
        assert!(queue.nodes.len() <= 1_000, "{} places for 1000 events", queue.nodes.len());
    }

    proptest! {
        /// Against an ordered map: any mix of scheduling near, far and at once, and of taking out
        /// with and without a limit.
        #[test]
        fn the_order_is_that_of_an_ordered_map(steps in prop::collection::vec((0u8..5, 0u64..1 << 26), 1..400)) {
            let mut queue = Queue::new();
            let mut model = BTreeMap::new();
            let mut now = 0;
            for (number, (kind, distance)) in (0u32..).zip(steps) {
                let ahead = match kind { 0 => 0, 1 => distance % 5_000, _ => distance };
                if kind < 3 {
                    queue.schedule(Instant::from_ps(now + ahead), number);
                    model.insert((now + ahead, number), ());
                } else {
                    let limit = if kind == 3 { u64::MAX } else { now + distance };
                    let expected = model.keys().next().copied().filter(|(at, _)| *at <= limit);
                    let got = queue.next_until(Instant::from_ps(limit));
                    prop_assert_eq!(got, expected.map(|(at, number)| (Instant::from_ps(at), number)));
                    if let Some(key) = expected {
                        model.remove(&key);
                        now = key.0;
                    }
                }
                prop_assert_eq!(queue.len(), model.len());
            }
        }
    }
}
