//! A bounded FIFO queue.

use alloc::collections::VecDeque;

/// A FIFO queue with a fixed capacity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ring<T> {
    items: VecDeque<T>,
    capacity: usize,
}

impl<T> Ring<T> {
    pub fn new(capacity: usize) -> Self {
        Self { items: VecDeque::with_capacity(capacity), capacity }
    }

    /// Appends an item. Returns false and drops the item if the queue is full.
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

    pub fn pop(&mut self) -> Option<T> {
        self.items.pop_front()
    }

    pub fn front(&self) -> Option<&T> {
        self.items.front()
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter()
    }

    pub fn contains(&self, item: &T) -> bool
    where
        T: PartialEq,
    {
        self.items.contains(item)
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub fn clear(&mut self) {
        self.items.clear();
    }

    pub fn retain(&mut self, keep: impl FnMut(&mut T) -> bool) {
        self.items.retain_mut(keep);
    }
}
