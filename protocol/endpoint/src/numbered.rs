//! A queue whose items keep the number that they were given on arrival.

use alloc::boxed::Box;
use core::hash::{Hash, Hasher};

/// First in, first out; item `n` is the `n`-th ever pushed, and is found by that number until it is
/// popped. A ring of a power of two: pushing in the steady state is one store.
///
/// A lone item lies in here and not in the ring: most connections never have more on the way, and
/// there are so many of them that a place elsewhere would have to be fetched from far away.
#[derive(Clone, Debug)]
pub(crate) struct Numbered<T> {
    first: u64,
    next: u64,
    /// The only item, when it was pushed while there was no other.
    lone: Option<T>,
    ring: Box<[T]>,
}

impl<T: Copy> Numbered<T> {
    pub fn new() -> Self {
        Self { first: 0, next: 0, lone: None, ring: Box::default() }
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
        match &self.lone {
            Some(lone) => lone,
            None => &self.ring[self.at(number)],
        }
    }

    /// The item with this number, which must be in the queue.
    #[inline]
    pub fn get_mut(&mut self, number: u64) -> &mut T {
        debug_assert!((self.first..self.next).contains(&number));
        let at = self.at(number);
        match &mut self.lone {
            Some(lone) => lone,
            None => &mut self.ring[at],
        }
    }

    /// The oldest item.
    #[inline]
    pub fn front(&self) -> Option<&T> {
        (!self.is_empty()).then(|| self.get(self.first))
    }

    #[inline]
    pub fn push(&mut self, item: T) {
        if self.is_empty() {
            self.lone = Some(item);
        } else {
            self.push_behind(item);
        }
        self.next += 1;
    }

    /// As [`Numbered::push`] where there is an item already.
    #[inline]
    fn push_behind(&mut self, item: T) {
        if self.len() >= self.ring.len() {
            self.grow();
        }
        if let Some(lone) = self.lone.take() {
            let at = self.at(self.first);
            self.ring[at] = lone;
        }
        let at = self.at(self.next);
        self.ring[at] = item;
    }

    /// Forgets the `count` oldest items, which must be there.
    #[inline]
    pub fn forget(&mut self, count: u64) {
        debug_assert!(count <= self.next - self.first);
        self.first += count;
        if self.is_empty() {
            self.lone = None;
        }
    }

    /// Makes room. There must be an item: it fills the places that are free. Not the item to come,
    /// which would then be put together in memory for each push, and read from there before its
    /// parts have got there: a fifth of what a sender takes for a message.
    #[cold]
    fn grow(&mut self) {
        let length = (2 * self.ring.len()).max(2);
        let filler = *self.get(self.first);
        let mut ring = alloc::vec![filler; length].into_boxed_slice();
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
