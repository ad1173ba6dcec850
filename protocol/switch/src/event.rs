//! What a switch tells its operator.

use alloc::collections::VecDeque;

use onepipe_base::Port;

/// A change in which links take part in the barriers, and what they hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SwitchEvent {
    /// Heard for the first time, or again after a loss or a leave.
    LinkJoined(Port),
    /// Silent for longer than the link timeout: out of the barriers.
    LinkLost(Port),
    /// Took its leave: out of the barriers.
    LinkLeft(Port),
    /// Who is at the other end does not hear this one any more: out of the barriers.
    LinkOneWay(Port),
    /// Another life has come in the place of the one that was there: that one is out of the
    /// barriers.
    LinkRestarted(Port),
    /// The commits of the link that was just lost, left or reborn are held until a controller has
    /// resolved it. Follows the event that says why.
    LinkFrozen(Port),
    /// A controller has resolved a frozen link: it holds commits no longer.
    LinkResolved(Port),
    /// A controller sits at this port.
    ControllerJoined(Port),
    /// No controller is heard at this port any more.
    ControllerLost(Port),
    /// This life was declared dead while it lived: all links are forgotten, and the next life has
    /// begun.
    Restarted,
}

/// Events that wait to be polled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Events {
    queue: VecDeque<SwitchEvent>,
    max: usize,
}

impl Events {
    pub(crate) fn new(max: usize) -> Self {
        Self { queue: VecDeque::with_capacity(max), max }
    }

    /// Queues an event. Answers false when there is no room: the driver breaks rule D2.
    pub(crate) fn push(&mut self, event: SwitchEvent) -> bool {
        let has_capacity = self.queue.len() < self.max;
        if has_capacity {
            self.queue.push_back(event);
        }
        has_capacity
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<SwitchEvent> {
        self.queue.pop_front()
    }
}
