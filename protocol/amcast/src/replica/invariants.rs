//! Invariants of a replica. No input may break them: whatever members send, the state does not
//! contradict itself.

use super::{PendingDelivery, Replica};
use crate::member::Member;

impl Replica {
    /// Checks that the state does not contradict itself. For tests, simulations and fuzzers: takes
    /// time linear in the positions held.
    ///
    /// # Panics
    /// If it does: a bug of this crate.
    pub fn check_invariants(&self) {
        self.check_counts();
        self.outbox.check_invariants();
        let has_order = self.pending.iter().is_sorted_by(|before, after| before < after);
        assert!(has_order, "messages wait in the order of delivery");
        for PendingDelivery { timestamp, id, position } in &self.pending {
            let range = self.first_undelivered..self.contiguous_until;
            assert!(range.contains(position), "what waits follows on what was delivered");
            let known = self.get(*position).expect("what waits is held");
            assert_eq!((known.id, known.decided), (*id, Some(*timestamp)), "as it was decided");
            assert!(known.bytes.is_some(), "a message waits with its content");
            assert!(!known.is_delivered, "a message is delivered once");
        }
        for (slot, known) in self.positions.iter().enumerate() {
            let Some(known) = known else { continue };
            assert_eq!(self.slot(known.position), slot, "a position has one slot");
            let len = usize::from(known.bytes.unwrap_or_default());
            assert!(len <= self.config.groups.message_len_max(), "a message fits its slot");
            assert!(known.decided.is_some() || !known.is_delivered, "delivered when decided");
        }
    }

    /// Checks the extent of what is known and delivered.
    pub(super) fn check_counts(&self) {
        let (first, until) = (self.first_undelivered, self.contiguous_until);
        assert!(first <= until, "the delivered prefix is contiguous");
        assert!(until - first <= self.positions.len() as u64, "what is held is bounded");
        assert!(self.pending.len() as u64 <= until - first, "each position waits once");
        let reported = self.barriers.iter().map(|(barrier, _)| *barrier).max();
        assert!(Some(self.barrier) <= reported, "a member has reported the barrier");
        let members = self.barriers.len();
        assert!(self.source < members, "requests go to a member");
        assert_eq!(self.acked_by >> members, 0, "only members acknowledge");
        let lens = Member::REQUEST_LEN..=Member::REQUEST_LEN_MAX;
        assert!(lens.contains(&self.request_len), "requests are bounded");
        assert!(self.stats.delivered == 0 || self.last.is_some(), "the last delivery is known");
    }
}
