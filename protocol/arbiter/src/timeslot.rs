//! Timeslots, and who sends to whom in each of a batch.

use alloc::vec::Vec;

use crate::Grant;

/// Timeslots of a batch at most: one bit each in a word.
pub const BATCH_SLOTS_MAX: u32 = 64;

/// In a [`Schedule`]: this endpoint sends nothing in this timeslot.
pub const NOBODY: u16 = u16::MAX;

/// The number of a timeslot since the arbiter's beginning of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timeslot(pub u64);

impl Timeslot {
    /// The timeslot `slots` later.
    pub const fn plus(self, slots: u32) -> Self {
        Self(self.0 + slots as u64)
    }
}

/// A batch's grants, spread out: whom each endpoint sends to in each timeslot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Schedule {
    /// A row of [`BATCH_SLOTS_MAX`] for each source.
    targets: Vec<[u16; BATCH_SLOTS_MAX as usize]>,
    /// In which timeslots each source sends something.
    busy: Vec<u64>,
}

impl Schedule {
    /// Of so many endpoints, with nothing in it.
    pub fn new(nodes: u32) -> Self {
        let targets = alloc::vec![[NOBODY; BATCH_SLOTS_MAX as usize]; nodes as usize];
        Self { targets, busy: alloc::vec![0; nodes as usize] }
    }

    /// Takes in the grants of a batch instead of what was here. Grants of endpoints that are not
    /// here are left out.
    pub fn fill(&mut self, grants: &[Grant]) {
        self.targets.fill([NOBODY; BATCH_SLOTS_MAX as usize]);
        self.busy.fill(0);
        for grant in grants {
            let src = usize::from(grant.src);
            let Some(row) = self.targets.get_mut(src) else { continue };
            self.busy[src] |= grant.slots;
            let mut slots = grant.slots;
            while slots != 0 {
                row[slots.trailing_zeros() as usize] = grant.dst;
                slots &= slots - 1;
            }
        }
    }

    /// Whom `src` sends to in each timeslot of the batch, [`NOBODY`] where to none.
    ///
    /// # Panics
    /// When there is no endpoint `src`.
    pub fn of(&self, src: u32) -> &[u16; BATCH_SLOTS_MAX as usize] {
        &self.targets[src as usize]
    }

    /// In which timeslots `src` sends something: bit 0 is the first of the batch.
    ///
    /// # Panics
    /// When there is no endpoint `src`.
    pub fn busy(&self, src: u32) -> u64 {
        self.busy[src as usize]
    }

    /// Endpoints.
    pub fn nodes(&self) -> u32 {
        self.targets.len() as u32
    }

    /// The pairs of one timeslot, counted from the begin of the batch, by ascending source.
    ///
    /// # Panics
    /// When asked for the next, if `slot` is not below [`BATCH_SLOTS_MAX`].
    pub fn pairs(&self, slot: u32) -> impl Iterator<Item = (u16, u16)> {
        let rows = self.targets.iter().enumerate();
        rows.map(move |(src, row)| (src as u16, row[slot as usize]))
            .filter(|(_, dst)| *dst != NOBODY)
    }
}
