//! The result of a batch, on its way from a worker to the control plane.

use alloc::vec::Vec;

use crate::Config;
use crate::allocate::Grants;
use crate::between::Routes;
use crate::demand::Flows;
use crate::desk::Given;
use crate::path::Paths;
use crate::timeslot::{BATCH_SLOTS_MAX, Schedule, Timeslot};

/// The result of a batch. A few are allocated and reused.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Allocated {
    pub(super) given: Given,
    pub(super) grants: Grants,
    pub(super) schedule: Schedule,
    /// Whether `schedule` holds the contents of `grants`.
    pub(super) is_spread: bool,
    pub(super) rack_nodes: u32,
    /// A row for each source, undefined in timeslots in which it sends nothing.
    pub(super) routes: Vec<[u8; BATCH_SLOTS_MAX as usize]>,
    /// Drained flows.
    pub(super) dry: Flows,
    /// Timeslots wanted by flows of endpoints that were reset.
    pub(super) dropped: u64,
}

impl Allocated {
    /// Creates an empty result. All memory is allocated here.
    pub fn new(config: &Config) -> Self {
        let nodes = config.nodes;
        let given = Given {
            number: 0,
            start: Timeslot(0),
            slots: 0,
            given: 0,
            unplaced: 0,
            wanted: 0,
            pairs: 0,
        };
        Self {
            given,
            grants: Grants::new(nodes, config.batch_slots),
            schedule: Schedule::new(nodes),
            is_spread: true,
            rack_nodes: 1,
            routes: alloc::vec![[Paths::NONE; BATCH_SLOTS_MAX as usize]; nodes as usize],
            dry: Flows::new(config.pairs_max),
            dropped: 0,
        }
    }

    /// Returns the number of the batch and its totals.
    pub fn given(&self) -> &Given {
        &self.given
    }

    /// Fills the schedule from the grants unless that is done. A worker that chooses no paths
    /// leaves this to whichever core has less to do.
    pub fn spread(&mut self) {
        if !self.is_spread {
            self.schedule.fill(self.grants.as_slice());
            self.is_spread = true;
        }
    }

    /// Returns the schedule, valid after [`AllocatedBatch::build_schedule`].
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }
}

impl Routes for Allocated {
    fn rack_nodes(&self) -> u32 {
        self.rack_nodes
    }

    #[inline]
    fn of(&self, src: u32) -> &[u8; BATCH_SLOTS_MAX as usize] {
        &self.routes[src as usize]
    }
}
