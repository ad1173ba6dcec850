//! Messages that are here, or may still come, and must not be delivered.
//!
//! Nothing is searched for in the buffer: what is taken back is noted, and a message that comes out
//! of the reorder stage is held against the notes (design: failure.md).

use alloc::vec::Vec;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{ProcessId, Timestamp};

use crate::Delivery;

/// How many recalls are noted at most; a recall beyond is not acknowledged, and comes again.
const RECALLS_MAX: usize = 1 << 16;

/// A failed sender: what it has scattered at or above `at` in its lives up to `generation` is discarded,
/// but for lives of which an earlier note speaks: each has failed at a timestamp of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Discard {
    from: ProcessId,
    generation: u16,
    at: Timestamp,
}

/// What must not be delivered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DeliveryFilter {
    /// Ascending: timestamp, sender, and which of its lives.
    recalls: Vec<(Timestamp, ProcessId, u16)>,
    discards: Vec<Discard>,
}

/// Why a message is not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tombstone {
    Recalled,
    Discarded,
}

impl DeliveryFilter {
    pub fn new() -> Self {
        Self { recalls: Vec::new(), discards: Vec::new() }
    }

    /// Notes that `from` takes its scattering of `timestamp` back. A later life of it may have used
    /// the same timestamp. Answers false when there is no room for it.
    pub fn recall(&mut self, (from, generation): (ProcessId, u16), timestamp: Timestamp) -> bool {
        let key = (timestamp, from, generation);
        let Err(at) = self.recalls.binary_search(&key) else { return true };
        let has_capacity = self.recalls.len() < RECALLS_MAX;
        if has_capacity {
            self.recalls.insert(at, key);
        }
        has_capacity
    }

    /// As [`DeliveryFilter::recall`], for what this process has scattered, or is told when it recovers: of
    /// that there is no more than the buffers hold, and nobody would say it again.
    pub fn recall_unbounded(&mut self, (from, generation): (ProcessId, u16), timestamp: Timestamp) {
        let key = (timestamp, from, generation);
        if let Err(at) = self.recalls.binary_search(&key) {
            self.recalls.insert(at, key);
        }
    }

    /// Notes that `from` has failed at `at`, in those of its lives up to `generation` of which it was not
    /// said before. A later life may have failed at a lower timestamp than one before it, which had
    /// committed more.
    pub fn discard(&mut self, from: ProcessId, generation: u16, at: Timestamp) {
        let mut known = self.discards.iter().filter(|known| known.from == from);
        if known.all(|known| known.generation < generation) {
            self.discards.push(Discard { from, generation, at });
        }
    }

    /// Forgets failures of senders that `is_gone` says nothing is held of.
    pub fn prune_discards(&mut self, is_gone: impl Fn(ProcessId) -> bool) {
        self.discards.retain(|discard| !is_gone(discard.from));
    }

    /// Whether anything is noted at all.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.recalls.is_empty() && self.discards.is_empty()
    }

    /// What is noted of a message that is the next of all.
    pub fn check(&mut self, delivery: &Delivery) -> Option<Tombstone> {
        // Everything below it has come out.
        let past = self.recalls.partition_point(|(recalled, ..)| *recalled < delivery.timestamp);
        self.recalls.drain(..past);
        let key = (delivery.timestamp, delivery.from, delivery.buffered.generation);
        if self.recalls.binary_search(&key).is_ok() && !makes(Mistake::RecallForgotten) {
            return Some(Tombstone::Recalled);
        }
        // Notes of one sender ascend by its lives.
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

    /// The barrier has passed everything below `barrier`, and all of it has come out.
    pub fn on_barrier(&mut self, barrier: Timestamp) {
        let past = self.recalls.partition_point(|(recalled, ..)| *recalled < barrier);
        self.recalls.drain(..past);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::PayloadRef;
    use crate::receive::BufferedMessage;
    use onepipe_wire::Service;

    fn delivery(ns: u64, from: u32, generation: u16) -> Delivery {
        Delivery {
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

    #[test]
    fn recall_drops_all_of_one_scattering_only() {
        let mut filter = DeliveryFilter::new();
        assert!(filter.is_empty());
        for (ns, from) in [(9, 2), (5, 1), (5, 1), (7, 1)] {
            assert!(filter.recall((ProcessId(from), 0), Timestamp::from_ns(ns)));
        }
        assert_eq!(filter.check(&delivery(4, 1, 0)), None);
        assert_eq!(filter.check(&delivery(5, 1, 0)), Some(Tombstone::Recalled));
        assert_eq!(
            filter.check(&delivery(5, 1, 0)),
            Some(Tombstone::Recalled),
            "a second message of it"
        );
        assert_eq!(filter.check(&delivery(5, 2, 0)), None);
        assert_eq!(filter.check(&delivery(5, 1, 1)), None, "a later life's of the same timestamp");
        assert_eq!(filter.check(&delivery(9, 1, 0)), None);
        assert_eq!(filter.recalls.len(), 1, "what is past is forgotten");
        filter.on_barrier(Timestamp::from_ns(10));
        assert!(filter.is_empty());
    }

    #[test]
    fn failed_incarnation_is_discarded_from_its_failure() {
        let mut filter = DeliveryFilter::new();
        filter.discard(ProcessId(3), 1, Timestamp::from_ns(100));
        assert_eq!(filter.check(&delivery(99, 3, 1)), None);
        assert_eq!(filter.check(&delivery(100, 3, 1)), Some(Tombstone::Discarded));
        assert_eq!(filter.check(&delivery(100, 3, 2)), None, "it has come back");
        filter.prune_discards(|process| process == ProcessId(3));
        assert!(filter.is_empty());
    }

    #[test]
    fn each_incarnation_has_its_own_failure_timestamp() {
        let mut filter = DeliveryFilter::new();
        filter.discard(ProcessId(3), 1, Timestamp::from_ns(100));
        filter.discard(ProcessId(3), 2, Timestamp::from_ns(60));
        filter.discard(ProcessId(3), 2, Timestamp::from_ns(30));
        for (generation, last) in [(0, 99), (1, 99), (2, 59)] {
            assert_eq!(filter.check(&delivery(last, 3, generation)), None, "life {generation}");
            assert_eq!(
                filter.check(&delivery(last + 1, 3, generation)),
                Some(Tombstone::Discarded)
            );
        }
        assert_eq!(filter.check(&delivery(200, 3, 3)), None, "it lives");
    }

    #[test]
    fn recalls_are_bounded() {
        let mut filter = DeliveryFilter::new();
        for ns in 0..RECALLS_MAX as u64 {
            assert!(filter.recall((ProcessId(0), 0), Timestamp::from_ns(ns)));
        }
        let last = Timestamp::from_ns(u64::MAX);
        assert!(!filter.recall((ProcessId(0), 0), last));
        assert!(filter.recall((ProcessId(0), 0), Timestamp::from_ns(7)), "known already");
        filter.recall_unbounded((ProcessId(1), 0), last);
        assert_eq!(filter.check(&delivery(u64::MAX, 1, 0)), Some(Tombstone::Recalled));
    }
}
