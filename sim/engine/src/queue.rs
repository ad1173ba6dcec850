//! The event queue: a timing wheel, with a heap for events beyond its horizon.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use crate::Instant;

/// Resolution and horizon of a [`Queue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// A slot of the wheel spans 2^slot_bits ps; optimal with a few dozen events.
    pub slot_bits: u32,
    /// Slots of the wheel, a multiple of 64. Events beyond them cost more: best only timers.
    pub slots: u64,
}

impl Span {
    /// For all events of a fabric: slots of 4.1 ns, with a few dozen events each in a saturated
    /// fabric of 32 hosts; a horizon of 16.8 us, a round trip.
    pub const FABRIC: Self = Self { slot_bits: 12, slots: 4096 };
    /// For all events of a fabric with few hosts or little load: slots of 262 ns, a horizon of
    /// 134 us, which holds most timers.
    pub const SPARSE: Self = Self { slot_bits: 18, slots: 512 };
    /// For the events of one node: slots of 131 ns, a horizon of 33.6 us.
    pub const NODE: Self = Self { slot_bits: 17, slots: 256 };
}

/// Events in the order of their instants; simultaneous ones in the order of their scheduling.
///
/// Costs amortised O(1) per event within the horizon. The events of a slot are stored in the order
/// of scheduling, and are sorted only when their slot becomes active, so they need no sequence
/// number. Buffers are reused last-in-first-out, which keeps them in the cache; nothing is
/// allocated in the steady state.
#[derive(Debug)]
pub struct Queue<E> {
    span: Span,
    /// Events of the slots up to `cursor`, earliest first; those before `taken` are consumed.
    active: Vec<Entry<E>>,
    taken: usize,
    /// The slot that `active` was filled from, counted from the start of time.
    cursor: u64,
    /// The events of each slot of the wheel, in the order of scheduling.
    slots: Vec<Vec<Entry<E>>>,
    /// Bitmap of the non-empty slots.
    occupied: Vec<u64>,
    /// Empty buffers with capacity.
    free_buffers: Vec<Vec<Entry<E>>>,
    /// Number of events in the wheel.
    near: usize,
    /// Events at or beyond the horizon (`cursor` + slots), and how many there ever were.
    far: BinaryHeap<Reverse<Far<E>>>,
    far_number: u64,
    /// Scratch for sorting: instant within the slot, and position in the slot.
    order: Vec<u64>,
    /// `take_fresh` has not been called since the slot became active.
    is_fresh: bool,
    now: Instant,
}

impl<E: Copy> Queue<E> {
    /// Returns an empty queue at the start of time.
    ///
    /// # Panics
    /// If the number of slots is not a multiple of 64.
    pub fn new(span: Span) -> Self {
        assert!(span.slots > 0 && span.slots.is_multiple_of(64), "{} slots", span.slots);
        Self {
            span,
            active: Vec::new(),
            taken: 0,
            cursor: 0,
            slots: (0..span.slots).map(|_| Vec::new()).collect(),
            occupied: vec![0; span.slots as usize / 64],
            free_buffers: Vec::new(),
            near: 0,
            far: BinaryHeap::new(),
            far_number: 0,
            order: Vec::new(),
            is_fresh: false,
            now: Instant::START,
        }
    }

    /// Returns the instant of the last event returned.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Returns the number of pending events.
    pub fn len(&self) -> usize {
        self.active.len() - self.taken + self.near + self.far.len()
    }

    /// Returns whether no event is pending.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Schedules `event` for `at`, which is not before [`Queue::now`].
    #[inline]
    pub fn schedule(&mut self, at: Instant, event: E) {
        debug_assert!(at >= self.now, "an event in the past");
        let entry = Entry { at: at.as_ps(), event };
        let slot = self.slot(&entry);
        if slot <= self.cursor {
            // Rare: due in the active slot. It is inserted after simultaneous events.
            let waiting = &self.active[self.taken..];
            let position = self.taken + waiting.partition_point(|held| held.at <= entry.at);
            self.active.insert(position, entry);
        } else if slot < self.cursor + self.span.slots {
            self.put(entry);
        } else {
            self.far.push(Reverse(Far { number: self.far_number, entry }));
            self.far_number += 1;
        }
    }

    /// Returns the next event if it is due at or before `limit`.
    #[inline]
    pub fn next_until(&mut self, limit: Instant) -> Option<(Instant, E)> {
        if self.taken == self.active.len() && !self.advance() {
            return None;
        }
        let entry = self.active[self.taken];
        if entry.at > limit.as_ps() {
            return None;
        }
        self.taken += 1;
        self.now = Instant::from_ps(entry.at);
        Some((self.now, entry.event))
    }

    /// Returns the events of the active slot once after it became active, so that the caller can
    /// prefetch their data together instead of one after the other.
    #[inline]
    pub fn take_fresh(&mut self) -> Option<impl Iterator<Item = &E> + Clone> {
        if !std::mem::replace(&mut self.is_fresh, false) {
            return None;
        }
        Some(self.active[self.taken..].iter().map(|entry| &entry.event))
    }

    /// Returns the slot of an entry, counted from the start of time.
    #[inline]
    fn slot(&self, entry: &Entry<E>) -> u64 {
        entry.at >> self.span.slot_bits
    }

    /// Returns the index of a slot in the wheel.
    #[inline]
    fn index(&self, slot: u64) -> usize {
        (slot % self.span.slots) as usize
    }

    /// Returns a lower bound of the next event's instant.
    #[inline]
    pub fn earliest(&self) -> Option<Instant> {
        if let Some(entry) = self.active.get(self.taken) {
            return Some(Instant::from_ps(entry.at));
        }
        let slot = if self.near > 0 {
            self.cursor + self.gap()
        } else {
            self.slot(&self.far.peek()?.0.entry)
        };
        Some(Instant::from_ps(slot << self.span.slot_bits))
    }

    /// Inserts an entry into its slot of the wheel.
    #[inline]
    fn put(&mut self, entry: Entry<E>) {
        let index = self.index(self.slot(&entry));
        let slot = &mut self.slots[index];
        if slot.capacity() == 0 {
            *slot = self.free_buffers.pop().unwrap_or_default();
        }
        slot.push(entry);
        self.occupied[index / 64] |= 1 << (index % 64);
        self.near += 1;
    }

    /// Advances the cursor to the next non-empty slot and makes its events active. Returns whether
    /// there is one.
    fn advance(&mut self) -> bool {
        self.cursor = if self.near > 0 {
            self.cursor + self.gap()
        } else if let Some(Reverse(first)) = self.far.peek() {
            self.slot(&first.entry)
        } else {
            return false;
        };
        let mut slot = self.take_slot();
        // Far events were scheduled before any future event of these slots, and so come first.
        let horizon = self.cursor + self.span.slots;
        while self.far.peek().is_some_and(|Reverse(far)| self.slot(&far.entry) < horizon) {
            let Reverse(Far { entry, .. }) = self.far.pop().expect("peeked");
            if self.slot(&entry) == self.cursor {
                slot.push(entry);
            } else {
                self.put(entry);
            }
        }
        self.activate(&slot);
        slot.clear();
        self.free_buffers.push(slot);
        true
    }

    /// Returns the number of slots from the cursor to the next non-empty one, which must exist.
    fn gap(&self) -> u64 {
        let (slots, words) = (self.span.slots, self.occupied.len());
        let start = self.index(self.cursor + 1) as u64;
        let mut word = (start / 64) as usize;
        let mut bits = self.occupied[word] & (u64::MAX << (start % 64));
        for _ in 0..=words {
            if bits != 0 {
                let found = word as u64 * 64 + u64::from(bits.trailing_zeros());
                return 1 + (found + slots - start) % slots;
            }
            word = (word + 1) % words;
            bits = self.occupied[word];
        }
        unreachable!("near > 0, so some slot has events")
    }

    /// Removes and returns the events of the slot at the cursor.
    fn take_slot(&mut self) -> Vec<Entry<E>> {
        let index = self.index(self.cursor);
        self.occupied[index / 64] &= !(1 << (index % 64));
        let slot = std::mem::take(&mut self.slots[index]);
        self.near -= slot.len();
        slot
    }

    /// Makes the events of a slot active. Sorts words instead of entries: the instant within the
    /// slot in the high bits, the position in the low ones.
    fn activate(&mut self, slot: &[Entry<E>]) {
        self.active.clear();
        self.taken = 0;
        self.is_fresh = true;
        if let [entry] = slot {
            return self.active.push(*entry);
        }
        let bits = self.span.slot_bits;
        let word = |(position, entry): (u64, &Entry<E>)| {
            (entry.at & ((1 << bits) - 1)) << (64 - bits) | position
        };
        self.order.clear();
        self.order.extend((0u64..).zip(slot).map(word));
        self.order.sort_unstable();
        let entry = |word: &u64| slot[(word & (u64::MAX >> bits)) as usize];
        self.active.extend(self.order.iter().map(entry));
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry<E> {
    at: u64,
    event: E,
}

/// An entry beyond the horizon; numbered, because a heap is not stable.
#[derive(Clone, Copy, Debug)]
struct Far<E> {
    number: u64,
    entry: Entry<E>,
}

impl<E> Far<E> {
    fn key(&self) -> (u64, u64) {
        (self.entry.at, self.number)
    }
}

impl<E> Ord for Far<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl<E> PartialOrd for Far<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Far<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<E> Eq for Far<E> {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn simultaneous_events_keep_scheduling_order() {
        for at in [0, 7, 1 << 13, 1 << 40] {
            let mut queue = Queue::new(Span::FABRIC);
            (0..100).for_each(|n| queue.schedule(Instant::from_ps(at), n));
            let order: Vec<i32> =
                std::iter::from_fn(|| queue.next_until(Instant::END)).map(|(_, n)| n).collect();
            assert_eq!(order, (0..100).collect::<Vec<_>>());
        }
    }

    #[test]
    fn reuses_event_buffers() {
        let mut queue = Queue::new(Span::FABRIC);
        (0..1_000u64).for_each(|n| queue.schedule(Instant::from_ps(n * 900), n));
        let mut random = crate::Random::named(1, "queue", 0);
        let mut step = |queue: &mut Queue<u64>| {
            let (at, n) = queue.next_until(Instant::END).expect("a thousand circulate");
            queue.schedule(at.after(random.below(2_000_000)), n);
        };
        (0..100_000).for_each(|_| step(&mut queue));
        let buffers = |queue: &Queue<u64>| {
            let held = queue.slots.iter().filter(|slot| slot.capacity() > 0);
            held.count() + queue.free_buffers.len()
        };
        let before = buffers(&queue);
        (0..1_000_000).for_each(|_| step(&mut queue));
        assert_eq!(queue.len(), 1_000);
        let after = buffers(&queue);
        assert!(after <= before.max(512), "{after} buffers for 489 slots");
    }

    #[test]
    fn fresh_events_are_shown_once() {
        let mut queue = Queue::new(Span::FABRIC);
        for at in [9_000, 8_999, 9_001, 70_000] {
            queue.schedule(Instant::from_ps(at), at);
        }
        assert!(queue.take_fresh().is_none(), "nothing is active yet");
        assert_eq!(queue.next_until(Instant::END).map(|(_, at)| at), Some(8_999));
        let shown: Option<Vec<u64>> = queue.take_fresh().map(|events| events.copied().collect());
        assert_eq!(shown, Some(vec![9_000, 9_001]));
        assert!(queue.take_fresh().is_none());
    }

    proptest! {
        /// Compares with an ordered map, for any mix of near and far events, and of polls with and
        /// without a limit.
        #[test]
        fn order_matches_ordered_map(steps in prop::collection::vec((0u8..5, 0u64..1 << 26), 1..400)) {
            let mut queue = Queue::new(Span::FABRIC);
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
