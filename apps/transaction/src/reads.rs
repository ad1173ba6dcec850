//! Reads that wait for the commit barrier.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use onepipe_base::{ProcessId, Timestamp};

/// A read that waits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WaitingRead {
    pub from: ProcessId,
    pub session: u64,
    pub number: u64,
    pub attempt: u32,
    /// Timestamp of the request, before which a strict read must not take place. `None` for a
    /// snapshot read.
    pub strict_at: Option<Timestamp>,
    pub part: Vec<u8>,
}

/// The waiting reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct WaitingReads {
    /// Each read by the timestamp that the commit barrier has to exceed: a strict read by its own,
    /// a snapshot read by the barrier that its client has seen, less 1 ns.
    by_timestamp: BTreeMap<Timestamp, Vec<WaitingRead>>,
    count: usize,
}

impl WaitingReads {
    pub fn insert(&mut self, above: Timestamp, read: WaitingRead) {
        self.by_timestamp.entry(above).or_default().push(read);
        self.count += 1;
    }

    /// Takes the reads that are due at `barrier`, in the order of their timestamps.
    pub fn due(&mut self, barrier: Timestamp) -> Vec<WaitingRead> {
        if self.by_timestamp.first_key_value().is_none_or(|(above, _)| *above >= barrier) {
            return Vec::new();
        }
        let later = self.by_timestamp.split_off(&barrier);
        let due = core::mem::replace(&mut self.by_timestamp, later);
        let due: Vec<WaitingRead> = due.into_values().flatten().collect();
        self.count -= due.len();
        due
    }

    /// Removes the reads of a process that has ended.
    pub fn end(&mut self, process: ProcessId) {
        for reads in self.by_timestamp.values_mut() {
            reads.retain(|read| read.from != process);
        }
        self.by_timestamp.retain(|_, reads| !reads.is_empty());
        self.count = self.by_timestamp.values().map(Vec::len).sum();
    }

    pub fn len(&self) -> usize {
        self.count
    }
}
