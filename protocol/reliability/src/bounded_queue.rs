//! A bounded FIFO queue.

use alloc::collections::VecDeque;

/// A FIFO queue with a fixed capacity, whose memory is allocated when it is created.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BoundedQueue<T> {
    items: VecDeque<T>,
    capacity: usize,
}

impl<T> BoundedQueue<T> {
    /// Creates an empty queue for `capacity` items.
    pub fn new(capacity: usize) -> Self {
        Self { items: VecDeque::with_capacity(capacity), capacity }
    }

    /// Appends an item. Returns false and drops the item if the queue is full.
    #[inline]
    pub fn push(&mut self, item: T) -> bool {
        let has_space = self.items.len() < self.capacity;
        if has_space {
            self.items.push_back(item);
        }
        has_space
    }

    /// Appends an item unless the queue contains it or is full.
    pub fn push_once(&mut self, item: T)
    where
        T: PartialEq,
    {
        if !self.contains(&item) {
            self.push(item);
        }
    }

    /// Removes and returns the first item.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        self.items.pop_front()
    }

    /// Returns the first item.
    #[inline]
    pub fn front(&self) -> Option<&T> {
        self.items.front()
    }

    /// Returns the items in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter()
    }

    /// Returns whether an equal item is in the queue.
    pub fn contains(&self, item: &T) -> bool
    where
        T: PartialEq,
    {
        self.items.contains(item)
    }

    /// Returns the number of items.
    #[inline]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns whether there is no item.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Removes all items.
    pub fn clear(&mut self) {
        self.items.clear();
    }

    /// Removes the items for which `keep` returns false.
    pub fn retain(&mut self, keep: impl FnMut(&mut T) -> bool) {
        self.items.retain_mut(keep);
    }

    /// Panics if there are more items than the capacity.
    pub fn check_invariants(&self) {
        assert!(self.items.len() <= self.capacity, "the queue is bounded");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_queue_accepts_nothing_until_an_item_is_popped() {
        let mut queue = BoundedQueue::new(2);
        queue.push_once('a');
        queue.push_once('a');
        assert_eq!((queue.len(), queue.push('b'), queue.push('c')), (1, true, false));
        queue.check_invariants();
        assert_eq!((queue.pop(), queue.front()), (Some('a'), Some(&'b')));
        assert!(queue.push('d'));
        queue.retain(|item| *item != 'b');
        assert!(queue.iter().eq(&['d']) && queue.contains(&'d') && !queue.is_empty());
        queue.clear();
        assert_eq!((queue.pop(), queue.is_empty()), (None, true));
    }
}
