//! A FIFO queue of indices, each of which is in it at most once.

use crate::{BitSet, BoundedQueue};

/// A FIFO queue of indices, each at most once, with a value for each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IndexQueue<T = ()> {
    items: BoundedQueue<(u16, T)>,
    /// One bit for each index in the queue.
    members: BitSet,
}

impl<T: Copy> IndexQueue<T> {
    /// Creates an empty queue for the indices below `count`. All memory is allocated here.
    pub fn new(count: usize) -> Self {
        Self { items: BoundedQueue::new(count), members: BitSet::new(count as u32) }
    }

    /// Appends an index unless it is in the queue.
    pub fn push(&mut self, index: u16, value: T) {
        if self.members.set(index.into()) {
            let is_pushed = self.items.push((index, value));
            debug_assert!(is_pushed, "there is space for each index once");
        }
    }

    /// Removes and returns the first index.
    pub fn pop(&mut self) -> Option<(u16, T)> {
        let (index, value) = self.items.pop()?;
        debug_assert!(self.members.has(index.into()), "an index in the queue is a member");
        self.members.clear(index.into());
        Some((index, value))
    }

    /// Removes and returns the first index if `is_due` holds for its value.
    pub fn pop_if(&mut self, is_due: impl FnOnce(T) -> bool) -> Option<u16> {
        self.front().filter(|(_, value)| is_due(*value))?;
        self.pop().map(|(index, _)| index)
    }

    /// Returns the first index.
    pub fn front(&self) -> Option<(u16, T)> {
        self.items.front().copied()
    }

    /// Returns the indices in order.
    pub fn iter(&self) -> impl Iterator<Item = (u16, T)> {
        self.items.iter().copied()
    }

    /// Returns whether an index is in the queue.
    pub fn contains(&self, index: u16) -> bool {
        self.members.has(index.into())
    }

    /// Returns the number of indices.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Removes all indices.
    pub fn clear(&mut self) {
        self.items.clear();
        self.members.clear_all();
    }

    /// Panics unless exactly the members are in the queue, each once.
    pub fn check_invariants(&self) {
        let members: u32 = self.members.words().iter().map(|word| word.count_ones()).sum();
        assert_eq!(members as usize, self.items.len(), "each member is in the queue once");
        assert!(self.iter().all(|(index, _)| self.contains(index)), "all in the queue are members");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_is_queued_once_until_it_is_popped() {
        let mut queue = IndexQueue::new(70);
        for (index, value) in [(69, 'a'), (3, 'b'), (69, 'c')] {
            queue.push(index, value);
            queue.check_invariants();
        }
        assert_eq!((queue.len(), queue.contains(69), queue.contains(4)), (2, true, false));
        assert_eq!(queue.iter().collect::<alloc::vec::Vec<_>>(), [(69, 'a'), (3, 'b')]);
        assert_eq!(queue.pop_if(|value| value == 'b'), None, "not the first");
        assert_eq!(queue.pop_if(|value| value == 'a'), Some(69));
        queue.push(69, 'd');
        assert_eq!(
            [queue.pop(), queue.pop(), queue.pop()],
            [Some((3, 'b')), Some((69, 'd')), None]
        );
        queue.push(5, 'e');
        queue.clear();
        queue.check_invariants();
        assert!(queue.is_empty() && !queue.contains(5));
    }
}
