//! The result of a batch, on its way from a worker to the control plane.

use alloc::vec::Vec;

use onepipe_timeslots::Grants;

use crate::{BATCH_SLOTS_MAX, BatchSummary, Config, Flows, Paths, Routes, Schedule, Timeslot};

/// The result of a batch. A few are allocated and reused.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AllocatedBatch {
    pub(super) summary: BatchSummary,
    pub(super) grants: Grants,
    pub(super) schedule: Schedule,
    /// Whether `schedule` holds the contents of `grants`.
    pub(super) has_schedule: bool,
    pub(super) rack_nodes: u32,
    /// A row for each source, undefined in timeslots in which it sends nothing.
    pub(super) routes: Vec<[u8; BATCH_SLOTS_MAX as usize]>,
    /// Drained flows.
    pub(super) drained: Flows,
    /// Timeslots wanted by flows of endpoints that were reset.
    pub(super) dropped: u64,
}

impl AllocatedBatch {
    /// Creates an empty result. All memory is allocated here.
    pub fn new(config: &Config) -> Self {
        let nodes = config.nodes;
        let summary = BatchSummary {
            number: 0,
            start: Timeslot(0),
            slots: 0,
            granted: 0,
            without_path: 0,
            wanted: 0,
            pairs: 0,
        };
        Self {
            summary,
            grants: Grants::new(nodes, config.batch_slots),
            schedule: Schedule::new(nodes),
            has_schedule: true,
            rack_nodes: 1,
            routes: alloc::vec![[Paths::NONE; BATCH_SLOTS_MAX as usize]; nodes as usize],
            drained: Flows::new(config.pairs_max),
            dropped: 0,
        }
    }

    /// Returns the number of the batch and its totals.
    pub fn summary(&self) -> &BatchSummary {
        &self.summary
    }

    /// Fills the schedule from the grants unless that is done. A worker that chooses no paths
    /// leaves this to whichever core has less to do.
    pub fn build_schedule(&mut self) {
        if !self.has_schedule {
            self.schedule.fill(self.grants.as_slice());
            self.has_schedule = true;
        }
    }

    /// Returns the schedule, valid after [`AllocatedBatch::build_schedule`].
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }
}

impl Routes for AllocatedBatch {
    fn rack_nodes(&self) -> u32 {
        self.rack_nodes
    }

    #[inline]
    fn of(&self, src: u32) -> &[u8; BATCH_SLOTS_MAX as usize] {
        &self.routes[src as usize]
    }
}
