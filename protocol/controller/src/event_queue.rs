//! The queue of events for the caller.

use alloc::collections::VecDeque;

use crate::Event;

/// Capacity of the event queue; further events are dropped and counted.
const EVENTS_MAX: usize = 4_096;

/// A bounded queue of events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct EventQueue {
    events: VecDeque<Event>,
}

impl EventQueue {
    /// Queues `event`. Returns false if the queue is full.
    pub(crate) fn push(&mut self, event: Event) -> bool {
        let has_capacity = self.events.len() < EVENTS_MAX;
        if has_capacity {
            self.events.push_back(event);
        }
        has_capacity
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Asserts what holds between any two calls.
    pub(crate) fn check_invariants(&self) {
        assert!(self.events.len() <= EVENTS_MAX, "events beyond the limit");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_beyond_the_limit_are_refused() {
        let mut events = EventQueue::default();
        assert!((0..EVENTS_MAX).all(|_| events.push(Event::Isolated)));
        assert!(!events.push(Event::StoreFailed), "the queue is full");
        assert_eq!(events.pop(), Some(Event::Isolated));
        assert!(events.push(Event::StoreFailed));
        events.check_invariants();
    }
}
