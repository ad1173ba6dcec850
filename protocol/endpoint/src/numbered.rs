//! A queue whose items keep the number that they were given on arrival.

use alloc::vec::Vec;
use core::hash::{Hash, Hasher};

/// First in, first out; item `n` is the `n`-th ever pushed, and is found by that number until it is
/// popped. A ring of a power of two: pushing in the steady state is one store.
#[derive(Clone, Debug)]
pub(crate) struct Numbered<T> {
    ring: Vec<T>,
    first: u64,
    next: u64,
}

impl<T: Copy> Numbered<T> {
    pub fn new() -> Self {
        Self { ring: Vec::new(), first: 0, next: 0 }
    }

    /// The number of the oldest item, or of the next one if there is none.
    #[inline]
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The number that the next item will get.
    #[inline]
    pub fn next(&self) -> u64 {
        self.next
    }

    #[inline]
    pub fn len(&self) -> usize {
        (self.next - self.first) as usize
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.next == self.first
    }

    #[inline]
    fn at(&self, number: u64) -> usize {
        // The length is a power of two, or zero and never indexed.
        number as usize & self.ring.len().wrapping_sub(1)
    }

    /// The item with this number, which must be in the queue.
    #[inline]
    pub fn get(&self, number: u64) -> &T {
        debug_assert!((self.first..self.next).contains(&number));
        &self.ring[self.at(number)]
    }

    /// The item with this number, which must be in the queue.
    #[inline]
    pub fn get_mut(&mut self, number: u64) -> &mut T {
        debug_assert!((self.first..self.next).contains(&number));
        let at = self.at(number);
        &mut self.ring[at]
    }

    /// The oldest item.
    #[inline]
    pub fn front(&self) -> Option<&T> {
        (!self.is_empty()).then(|| self.get(self.first))
    }

    #[inline]
    pub fn push(&mut self, item: T) {
        if self.len() == self.ring.len() {
            self.grow(item);
        }
        let at = self.at(self.next);
        self.ring[at] = item;
        self.next += 1;
    }

    /// Forgets the `count` oldest items, which must be there.
    #[inline]
    pub fn forget(&mut self, count: u64) {
        debug_assert!(count <= self.next - self.first);
        self.first += count;
    }

    #[cold]
    fn grow(&mut self, filler: T) {
        // From one on: most connections never have more than a packet or two on the way.
        let length = (2 * self.ring.len()).max(1);
        let mut ring = alloc::vec![filler; length];
        for number in self.first..self.next {
            ring[number as usize & (length - 1)] = *self.get(number);
        }
        self.ring = ring;
    }

    fn iter(&self) -> impl Iterator<Item = &T> {
        (self.first..self.next).map(|number| self.get(number))
    }
}

// What was popped still lies in the ring, and is no part of the value.
impl<T: Copy + PartialEq> PartialEq for Numbered<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.first, self.next) == (other.first, other.next) && self.iter().eq(other.iter())
    }
}

impl<T: Copy + Eq> Eq for Numbered<T> {}

impl<T: Copy + Hash> Hash for Numbered<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.first, self.next).hash(state);
        self.iter().for_each(|item| item.hash(state));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_keep_their_numbers_while_the_ring_grows_and_turns() {
        let mut queue = Numbered::new();
        for round in 0..100u64 {
            for item in 0..round {
                assert_eq!(queue.next() - queue.first(), queue.len() as u64);
                queue.push(queue.next() * 10 + item % 10);
            }
            let half = queue.len() as u64 / 2;
            queue.forget(half);
            for number in queue.first()..queue.next() {
                assert_eq!(queue.get(number) / 10, number);
            }
        }
        assert_eq!(queue.front().map(|item| item / 10), Some(queue.first()));
    }

    #[test]
    fn what_was_popped_makes_no_difference() {
        let (mut one, mut other) = (Numbered::new(), Numbered::new());
        one.push(1);
        other.push(2);
        assert_ne!(one, other);
        one.forget(1);
        other.forget(1);
        assert_eq!(one, other);
    }
}
