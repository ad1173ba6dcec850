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
            self.bytes -= arrival.descriptor.bytes;
        }
        self.waiting_for_memory.retain(|waiting| *waiting != group);
        Some(arrival)
    }

    /// Returns when the next payload must be dropped.
    pub fn drop_at(&self) -> Option<Mono> {
        self.arrivals.values().filter_map(|arrival| arrival.drop_at).min()
    }
}
