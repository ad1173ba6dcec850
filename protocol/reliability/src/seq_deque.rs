//! A FIFO queue whose items are indexed by sequence number.

use alloc::boxed::Box;
use core::hash::{Hash, Hasher};

/// Sequence-indexed deque: item `n` is the `n`-th ever pushed and is found by `n` until it is
/// popped. The storage is a ring whose length is a power of two; a push in the steady state is one
/// store.
///
/// A single item is stored inline instead of in the ring: most connections never have more in
/// flight, and there are many connections, so a ring elsewhere would cost a cache miss for each.
#[derive(Clone, Debug)]
pub struct SeqDeque<T> {
    first: u64,
    next: u64,
    /// The only item, if it was pushed into an empty queue.
    single: Option<T>,
    ring: Box<[T]>,
}

impl<T: Copy> Default for SeqDeque<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Copy> SeqDeque<T> {
    /// Creates an empty queue, whose first item will have the number 0.
    pub fn new() -> Self {
        Self { first: 0, next: 0, single: None, ring: Box::default() }
    }

    /// Returns the number of the oldest item, or of the next item if the queue is empty.
    #[inline]
    pub fn first_seq(&self) -> u64 {
        self.first
    }

    /// Returns the number that the next item will get.
    #[inline]
    pub fn next_seq(&self) -> u64 {
        self.next
    }

    /// Returns the number of items.
    #[inline]
    pub fn len(&self) -> usize {
        (self.next - self.first) as usize
    }

    /// Returns whether there is no item.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.next == self.first
    }

    #[inline]
    fn slot(&self, seq: u64) -> usize {
        // The length is a power of two; an empty ring is never indexed.
        seq as usize & self.ring.len().wrapping_sub(1)
    }

    /// Returns the item with this number, which must be in the queue.
    #[inline]
    pub fn get(&self, seq: u64) -> &T {
        debug_assert!((self.first..self.next).contains(&seq));
        match &self.single {
            Some(single) => single,
            None => &self.ring[self.slot(seq)],
        }
    }

    /// Returns the item with this number, which must be in the queue.
    #[inline]
    pub fn get_mut(&mut self, seq: u64) -> &mut T {
        debug_assert!((self.first..self.next).contains(&seq));
        let slot = self.slot(seq);
        match &mut self.single {
            Some(single) => single,
            None => &mut self.ring[slot],
        }
    }

    /// Returns the oldest item.
    #[inline]
    pub fn front(&self) -> Option<&T> {
        (!self.is_empty()).then(|| self.get(self.first))
    }

    /// Appends an item, which gets the number [`SeqDeque::next_seq`].
    #[inline]
    pub fn push(&mut self, item: T) {
        if self.is_empty() {
            self.single = Some(item);
        } else {
            if self.single.is_some() || self.len() >= self.ring.len() {
                self.make_space();
            }
            let slot = self.slot(self.next);
            self.ring[slot] = item;
        }
        self.next += 1;
    }

    /// Prepares the ring of a queue that is not empty for another item.
    #[inline(never)]
    fn make_space(&mut self) {
        if self.len() >= self.ring.len() {
            self.grow();
        }
        if let Some(single) = self.single.take() {
            let slot = self.slot(self.first);
            self.ring[slot] = single;
        }
    }

    /// Removes the `count` oldest items, which must exist.
    #[inline]
    pub fn pop_front(&mut self, count: u64) {
        debug_assert!(count <= self.next - self.first);
        self.first += count;
        if self.is_empty() {
            self.single = None;
        }
    }

    /// Doubles the ring. Free slots are filled with an existing item, so there must be one. The
    /// filler must not be the item being pushed: that item would then be assembled in memory for
    /// each push and read back before its stores complete, a fifth of the cost of sending a
    /// message.
    #[cold]
    fn grow(&mut self) {
        let capacity = (2 * self.ring.len()).max(2);
        let filler = *self.get(self.first);
        let mut ring = alloc::vec![filler; capacity].into_boxed_slice();
        for seq in self.first..self.next {
            ring[seq as usize & (capacity - 1)] = *self.get(seq);
        }
        self.ring = ring;
    }

    fn iter(&self) -> impl Iterator<Item = &T> {
        (self.first..self.next).map(|seq| self.get(seq))
    }
}

// Popped items remain in the ring, but are not part of the value.
impl<T: Copy + PartialEq> PartialEq for SeqDeque<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.first, self.next) == (other.first, other.next) && self.iter().eq(other.iter())
    }
}

impl<T: Copy + Eq> Eq for SeqDeque<T> {}

impl<T: Copy + Hash> Hash for SeqDeque<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.first, self.next).hash(state);
        self.iter().for_each(|item| item.hash(state));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_keep_their_numbers_as_the_ring_grows_and_wraps() {
        let mut queue = SeqDeque::new();
        for round in 0..100u64 {
            for item in 0..round {
                assert_eq!(queue.next_seq() - queue.first_seq(), queue.len() as u64);
                queue.push(queue.next_seq() * 10 + item % 10);
            }
            let half = queue.len() as u64 / 2;
            queue.pop_front(half);
            for seq in queue.first_seq()..queue.next_seq() {
                assert_eq!(queue.get(seq) / 10, seq);
            }
        }
        assert_eq!(queue.front().map(|item| item / 10), Some(queue.first_seq()));
    }

    #[test]
    fn popped_items_do_not_affect_equality() {
        let (mut one, mut other) = (SeqDeque::new(), SeqDeque::new());
        one.push(1);
        other.push(2);
        assert_ne!(one, other);
        one.pop_front(1);
        other.pop_front(1);
        assert_eq!(one, other);
    }
}
