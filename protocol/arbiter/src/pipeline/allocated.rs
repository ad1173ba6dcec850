//! What a worker says of a batch.

use alloc::vec::Vec;

use crate::between::Routes;
use crate::desk::{BATCH_DEMANDS_MAX, Given};
use crate::path::Paths;
use crate::timeslot::{BATCH_SLOTS_MAX, Schedule, Timeslot};

/// Timeslots that were demanded and not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Refused {
    /// Who wants to send.
    pub src: u32,
    /// To whom.
    pub dst: u32,
    /// How many.
    pub slots: u32,
}

/// A batch on its way from a worker to the desk. There are a few, which are used again and again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Allocated {
    pub(super) given: Given,
    pub(super) schedule: Schedule,
    pub(super) rack_nodes: u32,
    /// A row for each source; what is said of timeslots in which it sends nothing is of no account.
    pub(super) routes: Vec<[u8; BATCH_SLOTS_MAX as usize]>,
    pub(super) refused: Vec<Refused>,
}

impl Allocated {
    /// Of so many endpoints, with nothing in it. All memory that it will ever need is taken here.
    pub fn new(nodes: u32) -> Self {
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
            schedule: Schedule::new(nodes),
            rack_nodes: 1,
            routes: alloc::vec![[Paths::NONE; BATCH_SLOTS_MAX as usize]; nodes as usize],
            refused: Vec::with_capacity(BATCH_DEMANDS_MAX as usize),
        }
    }

    /// Which batch it is, and how much was given in it.
    pub fn given(&self) -> &Given {
        &self.given
    }

    /// Who sends to whom.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Demands of this batch that were not taken.
    pub fn refused(&self) -> &[Refused] {
        &self.refused
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
