//! Invariants of an owner. No message may break them.

use onepipe_base::mistake::{Mistake, makes};

use super::{MemoryOwner, WAITING_MAX};

impl<B: AsRef<[u8]> + AsMut<[u8]>> MemoryOwner<B> {
    /// Checks that the state does not contradict itself. For tests, simulations and fuzzers: takes
    /// time linear in the results that are remembered.
    ///
    /// # Panics
    /// If it does: a bug of this crate.
    pub fn check_invariants(&self) {
        self.check_order();
        for session in self.sessions.values() {
            session.check_invariants(self.options.results_max);
        }
        let barrier = self.barrier;
        let is_awaited = |at: &_| barrier.is_none_or(|barrier| *at >= barrier);
        assert!(self.ended.values().all(is_awaited), "a passed end is forgotten");
    }

    /// Checks the reads that wait.
    pub(super) fn check_order(&self) {
        assert!(self.waiting.len() <= WAITING_MAX, "the batches that wait are bounded");
        let is_new = |(.., arrival): &(_, _, u64)| *arrival <= self.arrivals;
        assert!(self.waiting.keys().all(is_new), "each batch has the number of its arrival");
        if let Some(((at, ..), _)) = self.waiting.first_key_value() {
            let is_above = |passed| self.barrier.is_none_or(|barrier| barrier <= passed);
            assert!(is_above(*at), "a read below the barrier was executed");
            let is_mistaken = makes(Mistake::MemoryReadAtDelivery);
            assert!(self.last <= Some(*at) || is_mistaken, "a read waits above all executed");
        }
    }
}
