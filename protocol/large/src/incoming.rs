//! Large payloads that come, or have come and wait for their place in the order.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use onepipe_base::{Mono, ProcessId, Timestamp};
use onepipe_endpoint::Service;
use onepipe_wire::LargeObject;

/// A payload.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Arrival {
    pub from: ProcessId,
    pub service: Service,
    pub note: LargeObject,
    /// Its group has been given memory for it, which counts.
    pub has_room: bool,
    /// All of it is here, as it was sent.
    pub is_whole: bool,
    /// Its bytes, once the group needs them no more.
    pub memory: Option<Vec<u8>>,
    /// Its descriptor has been delivered, and the application is through with it.
    pub is_ordered: bool,
    pub is_released: bool,
    /// Its sender failed: above this nothing of it is ordered.
    pub failed_at: Option<Timestamp>,
    /// If it has no place in the order by then, it will have none.
    pub drop_at: Option<Mono>,
}

impl Arrival {
    pub fn new(from: ProcessId, service: Service, note: LargeObject) -> Self {
        Self {
            from,
            service,
            note,
            has_room: false,
            is_whole: false,
            memory: None,
            is_ordered: false,
            is_released: false,
            failed_at: None,
            drop_at: None,
        }
    }
}

/// What the receiver knows. Groups are numbered so that they tell their senders.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Incoming {
    pub arrivals: BTreeMap<u64, Arrival>,
    /// Bytes for which there is memory.
    pub bytes: u64,
    /// Groups that wait for memory.
    pub wanting: VecDeque<u64>,
}

impl Incoming {
    /// Forgets a payload. Answers it.
    pub fn forget(&mut self, group: u64) -> Option<Arrival> {
        let arrival = self.arrivals.remove(&group)?;
        if arrival.has_room {
            self.bytes -= arrival.note.bytes;
        }
        self.wanting.retain(|wanting| *wanting != group);
        Some(arrival)
    }

    /// When the next payload is to be dropped.
    pub fn drop_at(&self) -> Option<Mono> {
        self.arrivals.values().filter_map(|arrival| arrival.drop_at).min()
    }
}
