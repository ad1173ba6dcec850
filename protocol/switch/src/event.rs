//! What a switch tells its operator.

use alloc::collections::VecDeque;

use onepipe_base::Port;

/// A change in which input links take part in the barriers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SwitchEvent {
    /// Heard for the first time, or again after a loss or a leave.
    LinkJoined(Port),
    /// Silent for longer than the link timeout: out of the barriers.
    LinkLost(Port),
    /// Took its leave: out of the barriers.
    LinkLeft(Port),
}

/// Events that wait to be polled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Events {
    waiting: VecDeque<SwitchEvent>,
    max: usize,
}

impl Events {
    pub(crate) fn new(max: usize) -> Self {
        Self { waiting: VecDeque::with_capacity(max), max }
    }

    /// Queues an event. Answers false when there is no room: the driver breaks rule D2.
    pub(crate) fn push(&mut self, event: SwitchEvent) -> bool {
        let has_room = self.waiting.len() < self.max;
        if has_room {
            self.waiting.push_back(event);
        }
        has_room
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<SwitchEvent> {
        self.waiting.pop_front()
    }
}
