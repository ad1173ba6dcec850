//! Grants that are held back to share a packet with those of the next batch.

use onepipe_base::Mono;
use onepipe_reliability::IndexQueue;

use crate::BATCH_SLOTS_MAX;

/// Endpoints whose grants are held.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct HeldGrants {
    endpoints: IndexQueue,
    /// Number of timeslots of the batches since the last release.
    slots: u32,
    /// Deadline for sending what is held.
    until: Option<Mono>,
}

impl HeldGrants {
    pub fn new(nodes: usize) -> Self {
        Self { endpoints: IndexQueue::new(nodes), slots: 0, until: None }
    }

    /// Counts a batch. Returns whether its grants may be held until `until`: while another batch of
    /// its length fits the same packet.
    pub fn on_batch(&mut self, slots: u32, until: Option<Mono>) -> bool {
        let is_held = until.is_some() && self.slots + 2 * slots <= BATCH_SLOTS_MAX;
        self.slots += slots;
        is_held
    }

    /// Holds the grants of an endpoint.
    pub fn push(&mut self, src: u16) {
        self.endpoints.push(src, ());
    }

    /// Sets the deadline, unless there is one already.
    pub fn set_deadline(&mut self, until: Option<Mono>) {
        self.until = self.until.or(until);
    }

    /// Moves all endpoints to `ready`.
    pub fn release(&mut self, ready: &mut IndexQueue) {
        (self.slots, self.until) = (0, None);
        while let Some((src, ())) = self.endpoints.pop() {
            ready.push(src, ());
        }
    }

    pub fn contains(&self, src: u16) -> bool {
        self.endpoints.contains(src)
    }

    pub fn due(&self) -> Option<Mono> {
        self.until
    }

    pub fn check_invariants(&self) {
        self.endpoints.check_invariants();
        assert!(self.slots <= BATCH_SLOTS_MAX, "held grants fit a packet");
        if self.until.is_none() {
            assert!(self.endpoints.is_empty(), "held grants have a deadline");
            assert_eq!(self.slots, 0, "nothing is held");
        }
    }
}
