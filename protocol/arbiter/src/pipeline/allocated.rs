//! What a worker says of a batch.

use alloc::vec::Vec;

use crate::Config;
use crate::allocate::Grants;
use crate::between::Routes;
use crate::demand::Flows;
use crate::desk::Given;
use crate::path::Paths;
use crate::timeslot::{BATCH_SLOTS_MAX, Schedule, Timeslot};

/// A batch on its way from a worker to the desk. There are a few, which are used again and again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Allocated {
    pub(super) given: Given,
    pub(super) grants: Grants,
    pub(super) schedule: Schedule,
    /// Whether `schedule` says what `grants` do.
    pub(super) is_spread: bool,
    pub(super) rack_nodes: u32,
    /// A row for each source; what is said of timeslots in which it sends nothing is of no account.
    pub(super) routes: Vec<[u8; BATCH_SLOTS_MAX as usize]>,
    /// Flows that were given all that they wanted.
    pub(super) dry: Flows,
    /// Timeslots wanted by flows of who has begun anew.
    pub(super) dropped: u64,
}

impl Allocated {
    /// With nothing in it. All memory that it will ever need is taken here.
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

    /// Which batch it is, and how much was given in it.
    pub fn given(&self) -> &Given {
        &self.given
    }

    /// Spreads out the grants, if nobody has. A worker need not that has no paths to choose: then
    /// whoever has less to do does it.
    pub fn spread(&mut self) {
        if !self.is_spread {
            self.schedule.fill(self.grants.as_slice());
            self.is_spread = true;
        }
    }

    /// Who sends to whom: of account when it is [`Allocated::spread`].
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
