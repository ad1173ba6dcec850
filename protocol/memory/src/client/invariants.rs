//! Invariants of a client. No message and no report of the fabric may break them.

use super::MemoryClient;
use super::pending::Phase;
use crate::request::Order;

impl MemoryClient {
    /// Checks that the state does not contradict itself. For tests, simulations and fuzzers: takes
    /// time linear in the requests in flight.
    ///
    /// # Panics
    /// If it does: a bug of this crate.
    pub fn check_invariants(&self) {
        let (mut deadlines, mut scatterings, mut queued) = (0, 0, 0);
        for (number, pending) in &self.pending {
            assert!(*number < self.next, "numbers of requests ascend");
            assert!(pending.unanswered().next().is_some(), "an answered request has completed");
            assert!(!pending.is_reliable || pending.order == Order::Total, "one order is reliable");
            let was_sent = pending.sent_at.is_some();
            assert_eq!(pending.first_sent_at.is_some(), was_sent, "a first time, and a last one");
            assert!(pending.first_sent_at <= pending.sent_at, "the last time is not before");
            assert!(was_sent || pending.phase == Phase::Queued, "what was never sent is queued");
            let is_queued = pending.phase == Phase::Queued;
            assert!(!is_queued || pending.deadline.is_none(), "a queued request awaits nothing");
            if let Some(deadline) = pending.deadline {
                assert!(self.deadlines.contains(&(deadline, *number)), "a deadline is in order");
                deadlines += 1;
            }
            if let Some(scattering) = pending.scattering {
                let of = self.scatterings.get(&scattering);
                assert_eq!(of, Some(number), "a scattering is known by its request");
                scatterings += 1;
            }
            queued += usize::from(is_queued);
        }
        assert_eq!(self.deadlines.len(), deadlines, "each deadline is of a request in flight");
        assert_eq!(self.scatterings.len(), scatterings, "and so is each scattering");
        assert!(self.to_send.len() <= queued, "a request is queued once");
        let is_known = |number: &u64| self.pending.contains_key(number);
        assert!(self.to_send.iter().all(is_known), "what is queued is in flight");
        assert!(self.to_ask.iter().all(is_known), "a question is about a request in flight");
    }
}
