//! The delivery filter: messages that must not be delivered, whether or not they have arrived.
//!
//! Recalls and discards never search the receive buffer. They are recorded as tombstones, and each
//! message is checked when it leaves the reorder stage (docs/design/failure.md, "How is a message
//! taken back?").

use alloc::vec::Vec;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{ProcessId, Timestamp};

use crate::Delivery;

/// Limit on recorded recalls. A recall beyond it is not acknowledged, so its sender retransmits it.
const RECALLS_MAX: usize = 1 << 16;

/// A failed sender: messages at or above `at` of its generations up to `generation` are discarded,
/// except generations covered by an earlier record, since each has its own failure timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Discard {
    from: ProcessId,
    generation: u16,
    at: Timestamp,
}

/// A recalled scattering. The generation is needed, because a later incarnation may have used the
/// same timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RecalledScattering {
    pub timestamp: Timestamp,
    pub from: ProcessId,
    pub generation: u16,
}

/// Recalled scatterings and failed senders.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DeliveryFilter {
    /// Ascending by timestamp, sender and generation.
    recalls: Vec<RecalledScattering>,
    discards: Vec<Discard>,
}

/// Why a message must not be delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tombstone {
    Recalled,
    Discarded,
}

impl DeliveryFilter {
    pub fn new() -> Self {
        Self { recalls: Vec::new(), discards: Vec::new() }
    }

    /// Records the recall of a scattering. Returns false if the filter is full.
    pub fn recall(&mut self, scattering: RecalledScattering) -> bool {
        let Err(position) = self.recalls.binary_search(&scattering) else { return true };
        let has_capacity = self.recalls.len() < RECALLS_MAX;
        if has_capacity {
            self.recalls.insert(position, scattering);
        }
        has_capacity
    }

    /// Like [`DeliveryFilter::recall`] without the limit, for local scatterings and for recovery:
    /// these recalls are bounded by the buffers and would not be retransmitted.
    pub fn recall_unbounded(&mut self, scattering: RecalledScattering) {
        if let Err(position) = self.recalls.binary_search(&scattering) {
            self.recalls.insert(position, scattering);
        }
    }

    //= spec/failure.md#R9
    /// Records that generations of `from` up to `generation` have failed at `at`, except those
    /// recorded before. A later incarnation may fail at a lower timestamp than an earlier one that
    /// had committed more.
    pub fn discard(&mut self, from: ProcessId, generation: u16, at: Timestamp) {
        let mut known = self.discards.iter().filter(|known| known.from == from);
        if known.all(|known| known.generation < generation) {
            self.discards.push(Discard { from, generation, at });
        }
    }

    /// Removes records of senders for which `is_gone` returns true: none of their messages is
    /// buffered.
    pub fn prune_discards(&mut self, is_gone: impl Fn(ProcessId) -> bool) {
        self.discards.retain(|discard| !is_gone(discard.from));
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.recalls.is_empty() && self.discards.is_empty()
    }

    //= spec/failure.md#R7
    //= spec/failure.md#R9
    /// Returns why the next message in the total order must not be delivered, if so.
    pub fn check(&mut self, delivery: &Delivery) -> Option<Tombstone> {
        // Messages are checked in the total order, so recalls below this timestamp are finished.
        let past = self.recalls.partition_point(|recall| recall.timestamp < delivery.timestamp);
        self.recalls.drain(..past);
        if self.is_recalled(delivery) && !makes(Mistake::RecallForgotten) {
            return Some(Tombstone::Recalled);
        }
        // Records of one sender ascend by generation.
        let mut discards = self.discards.iter();
        let discard = discards.find(|discard| {
            discard.from == delivery.from && delivery.buffered.generation <= discard.generation
        });
        let is_discarded = discard.is_some_and(|discard| match makes(Mistake::DiscardOffByOne) {
            true => delivery.timestamp > discard.at,
            false => delivery.timestamp >= discard.at,
        });
        let is_discarded = is_discarded && !makes(Mistake::DiscardForgotten);
        is_discarded.then_some(Tombstone::Discarded)
    }

    /// Returns whether the scattering of a message was recalled.
    pub fn is_recalled(&self, delivery: &Delivery) -> bool {
        let (timestamp, from) = (delivery.timestamp, delivery.from);
        let generation = delivery.buffered.generation;
        let scattering = RecalledScattering { timestamp, from, generation };
        self.recalls.binary_search(&scattering).is_ok()
    }

    /// Checks the order that lookups rely on.
    pub fn check_invariants(&self) {
        assert!(self.recalls.windows(2).all(|pair| pair[0] < pair[1]), "recalls ascend");
        for (position, discard) in self.discards.iter().enumerate() {
            let mut earlier = self.discards[..position].iter();
            let is_later = earlier
                .all(|known| known.from != discard.from || known.generation < discard.generation);
            assert!(is_later, "records of one sender ascend by generation");
        }
    }

    /// Removes recalls below `barrier` once every message below it has left the reorder stage.
    pub fn on_barrier(&mut self, barrier: Timestamp) {
        let past = self.recalls.partition_point(|recall| recall.timestamp < barrier);
        self.recalls.drain(..past);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::PayloadRef;
    use crate::scattering::BufferedMessage;
    use onepipe_wire::Service;

    fn delivery(ns: u64, from: u32, generation: u16) -> Delivery {
        Delivery {
            is_unordered: false,
            service: Service::Reliable,
            timestamp: Timestamp::from_ns(ns),
            from: ProcessId(from),
            index: 0,
            len: 0,
            buffered: BufferedMessage {
                payload_ref: PayloadRef::NONE,
                generation,
                is_reserved: false,
            },
        }
    }

    fn scattering(ns: u64, from: u32) -> RecalledScattering {
        let (timestamp, from) = (Timestamp::from_ns(ns), ProcessId(from));
        RecalledScattering { timestamp, from, generation: 0 }
    }

    //= spec/failure.md#R7
    #[test]
    fn recall_drops_all_of_one_scattering_only() {
        let mut filter = DeliveryFilter::new();
        assert!(filter.is_empty());
        for (ns, from) in [(9, 2), (5, 1), (5, 1), (7, 1)] {
            assert!(filter.recall(scattering(ns, from)));
        }
        assert_eq!(filter.check(&delivery(4, 1, 0)), None);
        assert_eq!(filter.check(&delivery(5, 1, 0)), Some(Tombstone::Recalled));
        assert_eq!(
            filter.check(&delivery(5, 1, 0)),
            Some(Tombstone::Recalled),
            "second message of the scattering"
        );
        assert_eq!(filter.check(&delivery(5, 2, 0)), None);
        assert_eq!(filter.check(&delivery(5, 1, 1)), None, "same timestamp, later incarnation");
        assert_eq!(filter.check(&delivery(9, 1, 0)), None);
        assert_eq!(filter.recalls.len(), 1, "recalls below the last message are removed");
        filter.on_barrier(Timestamp::from_ns(10));
        assert!(filter.is_empty());
    }

    //= spec/failure.md#R9
    #[test]
    fn failed_incarnation_is_discarded_from_its_failure() {
        let mut filter = DeliveryFilter::new();
        filter.discard(ProcessId(3), 1, Timestamp::from_ns(100));
        assert_eq!(filter.check(&delivery(99, 3, 1)), None);
        assert_eq!(filter.check(&delivery(100, 3, 1)), Some(Tombstone::Discarded));
        assert_eq!(filter.check(&delivery(100, 3, 2)), None, "the sender has restarted");
        filter.prune_discards(|process| process == ProcessId(3));
        assert!(filter.is_empty());
    }

    //= spec/failure.md#R9
    #[test]
    fn each_incarnation_has_its_own_failure_timestamp() {
        let mut filter = DeliveryFilter::new();
        filter.discard(ProcessId(3), 1, Timestamp::from_ns(100));
        filter.discard(ProcessId(3), 2, Timestamp::from_ns(60));
        filter.discard(ProcessId(3), 2, Timestamp::from_ns(30));
        for (generation, last) in [(0, 99), (1, 99), (2, 59)] {
            assert_eq!(
                filter.check(&delivery(last, 3, generation)),
                None,
                "generation {generation}"
            );
            assert_eq!(
                filter.check(&delivery(last + 1, 3, generation)),
                Some(Tombstone::Discarded)
            );
        }
        assert_eq!(filter.check(&delivery(200, 3, 3)), None, "this incarnation has not failed");
    }

    #[test]
    fn recalls_are_bounded() {
        let mut filter = DeliveryFilter::new();
        for ns in 0..RECALLS_MAX as u64 {
            assert!(filter.recall(scattering(ns, 0)));
        }
        assert!(!filter.recall(scattering(u64::MAX, 0)));
        assert!(filter.recall(scattering(7, 0)), "already recorded");
        filter.recall_unbounded(scattering(u64::MAX, 1));
        assert_eq!(filter.check(&delivery(u64::MAX, 1, 0)), Some(Tombstone::Recalled));
    }
}
