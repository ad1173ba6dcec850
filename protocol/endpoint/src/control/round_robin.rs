//! Saying one thing to several controllers.

use onepipe_base::{Controllers, ProcessId};

/// One frame for each controller in turn, or for one of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RoundRobin {
    controllers: Controllers,
    /// Whose turn it is, as a place in the range.
    next: u32,
    remaining: u32,
}

impl RoundRobin {
    /// Nobody's turn.
    pub fn new(controllers: Controllers) -> Self {
        Self { controllers, next: 0, remaining: 0 }
    }

    /// Everybody's turn, from where the last round ended or was broken off: nobody starves.
    pub fn start(&mut self) {
        self.remaining = self.controllers.count;
    }

    /// The turn of `only`, which is one of them.
    pub fn start_with(&mut self, only: ProcessId) {
        debug_assert!(self.controllers.contains(only));
        self.next = only.0.wrapping_sub(self.controllers.first.0);
        self.remaining = 1;
    }

    /// Whose turn it is.
    pub fn current(&self) -> Option<ProcessId> {
        (self.remaining > 0).then_some(ProcessId(self.controllers.first.0.wrapping_add(self.next)))
    }

    /// The next one's turn.
    pub fn advance(&mut self) {
        self.remaining = self.remaining.saturating_sub(1);
        self.next = if self.next + 1 < self.controllers.count { self.next + 1 } else { 0 };
    }

    /// Nobody's turn any more.
    pub fn stop(&mut self) {
        self.remaining = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(round: &mut RoundRobin) -> alloc::vec::Vec<u32> {
        core::iter::from_fn(|| {
            let turn = round.current()?;
            round.advance();
            Some(turn.0)
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
        assert_eq!(turns(&mut round), [8, 9, 7]);
        round.start_with(ProcessId(9));
        assert_eq!(turns(&mut round), [9]);
        round.start();
        round.stop();
        assert_eq!(turns(&mut round), []);
    }
}
