//! Large payloads that are arriving, or waiting for their descriptor.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use onepipe_base::{Mono, ProcessId, Timestamp};
use onepipe_endpoint::Service;
use onepipe_wire::LargeObject;

/// A large payload at its receiver.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Arrival {
    pub from: ProcessId,
    pub service: Service,
    pub descriptor: LargeObject,
    /// Memory is allocated for the payload, and counts in [`Incoming::bytes`].
    pub has_memory: bool,
    /// The payload is complete and its digest is right.
    pub is_whole: bool,
    /// The bytes, once the group does not need them any more.
    pub memory: Option<Vec<u8>>,
    /// The descriptor was delivered, and (`is_released`) the application has released the payload.
    pub is_ordered: bool,
    pub is_released: bool,
    /// The failure timestamp of the sender: descriptors at or above it are not delivered.
    pub failed_at: Option<Timestamp>,
    /// When to drop the payload if it is not ordered by then.
    pub drop_at: Option<Mono>,
}

impl Arrival {
    pub fn new(from: ProcessId, service: Service, descriptor: LargeObject) -> Self {
        Self {
            from,
            service,
            descriptor,
            has_memory: false,
            is_whole: false,
            memory: None,
            is_ordered: false,
            is_released: false,
            failed_at: None,
            drop_at: None,
        }
    }
}

/// Large payloads at this process as a receiver, by group. The group's number contains its sender.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Incoming {
    pub arrivals: BTreeMap<u64, Arrival>,
    /// Allocated bytes.
    pub bytes: u64,
    /// Groups that wait for memory.
    pub waiting_for_memory: VecDeque<u64>,
}

impl Incoming {
    /// Removes and returns the payload of `group`.
    pub fn forget(&mut self, group: u64) -> Option<Arrival> {
        let arrival = self.arrivals.remove(&group)?;
        if arrival.has_memory {
            debug_assert!(self.bytes >= arrival.descriptor.bytes, "its memory was counted");
            self.bytes -= arrival.descriptor.bytes;
        }
        self.waiting_for_memory.retain(|waiting| *waiting != group);
        Some(arrival)
    }

    /// Panics if the counts contradict the payloads. `own` is this process, whose own payloads are
    /// bounded by its send buffer.
    pub fn check_invariants(&self, own: ProcessId, bytes_max: u64) {
        let (mut bytes, mut of_others) = (0, 0);
        for (group, arrival) in &self.arrivals {
            assert_eq!(arrival.descriptor.group, *group, "a payload is found by its group");
            if arrival.has_memory {
                bytes += arrival.descriptor.bytes;
                of_others += if arrival.from == own { 0 } else { arrival.descriptor.bytes };
            }
            if let Some(memory) = &arrival.memory {
                assert!(arrival.is_whole, "a group returns the memory of a complete payload");
                assert!(arrival.has_memory, "memory is counted");
                assert_eq!(memory.len() as u64, arrival.descriptor.bytes, "all of the payload");
            }
            assert!(arrival.is_whole || !arrival.is_ordered, "a complete payload is delivered");
            assert!(arrival.is_ordered || !arrival.is_released, "a delivered one is released");
        }
        assert_eq!(self.bytes, bytes, "allocated is the sum of the payloads with memory");
        assert!(of_others <= bytes_max, "the receive buffer is bounded");
        for (at, waiting) in self.waiting_for_memory.iter().enumerate() {
            let arrival = self.arrivals.get(waiting).expect("a payload that waits is known");
            assert!(!arrival.has_memory, "a payload that has memory does not wait");
            let before = self.waiting_for_memory.iter().take(at);
            assert!(!before.into_iter().any(|other| other == waiting), "each waits once");
        }
    }

    /// Returns when the next payload must be dropped.
    pub fn drop_at(&self) -> Option<Mono> {
        self.arrivals.values().filter_map(|arrival| arrival.drop_at).min()
    }
}
