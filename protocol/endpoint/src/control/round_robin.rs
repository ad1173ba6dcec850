//! Sends one frame to each of several controllers.

use onepipe_base::{Controllers, ProcessId};

/// The controllers that are still to be sent a frame, in ascending order from `next` on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RoundRobin {
    controllers: Controllers,
    /// Index of the next controller among the controllers.
    next: u32,
    remaining: u32,
}

impl RoundRobin {
    /// Creates a round robin without a pending round.
    pub fn new(controllers: Controllers) -> Self {
        Self { controllers, next: 0, remaining: 0 }
    }

    /// Starts a round of all controllers. The first is the one after the last that was sent a
    /// frame, so that a round that is stopped early does not always skip the same controllers.
    pub fn start(&mut self) {
        self.remaining = self.controllers.count;
    }

    /// Starts a round of a single controller, `only`.
    pub fn start_with(&mut self, only: ProcessId) {
        debug_assert!(self.controllers.contains(only));
        self.next = only.0.wrapping_sub(self.controllers.first.0);
        self.remaining = 1;
    }

    /// Returns the current controller.
    pub fn current(&self) -> Option<ProcessId> {
        (self.remaining > 0).then_some(ProcessId(self.controllers.first.0.wrapping_add(self.next)))
    }

    /// Moves on to the next controller.
    pub fn advance(&mut self) {
        self.remaining = self.remaining.saturating_sub(1);
        self.next = if self.next + 1 < self.controllers.count { self.next + 1 } else { 0 };
    }

    /// Checks that a round is one of the controllers.
    pub fn check_invariants(&self) {
        let count = self.controllers.count;
        assert!(self.remaining <= count, "each controller is sent one frame in a round");
        assert!(self.next < count.max(1), "the next controller is one of them");
    }

    /// Ends the round.
    pub fn stop(&mut self) {
        self.remaining = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finish(round: &mut RoundRobin) -> alloc::vec::Vec<u32> {
        core::iter::from_fn(|| {
            let controller = round.current()?;
            round.advance();
            Some(controller.0)
        })
        .collect()
    }

    #[test]
    fn each_round_resumes_where_the_last_one_stopped() {
        let mut round = RoundRobin::new(Controllers { first: ProcessId(7), count: 3 });
        assert_eq!(round.current(), None);
        round.start();
        round.advance();
        round.start();
        assert_eq!(finish(&mut round), [8, 9, 7]);
        round.start_with(ProcessId(9));
        assert_eq!(finish(&mut round), [9]);
        round.start();
        round.stop();
        assert_eq!(finish(&mut round), []);
    }
}
