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

/// Timeslots that are written at a time.
const LANES: usize = 8;
/// For each octet: all ones in the places of its zeros, and none in those of its ones.
static OTHERS: [[u16; LANES]; 256] = others();

const fn others() -> [[u16; LANES]; 256] {
    let mut table = [[u16::MAX; LANES]; 256];
    let mut octet = 0;
    while octet < 256 {
        let mut lane = 0;
        while lane < LANES {
            if octet >> lane & 1 == 1 {
                table[octet][lane] = 0;
            }
            lane += 1;
        }
        octet += 1;
    }
    table
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

    /// Nobody sends anything.
    pub fn clear(&mut self) {
        for (row, busy) in self.targets.iter_mut().zip(&mut self.busy) {
            if *busy != 0 {
                *row = [NOBODY; BATCH_SLOTS_MAX as usize];
                *busy = 0;
            }
        }
    }

    /// In this timeslot `src` sends to `dst`.
    ///
    /// # Panics
    /// When there is no endpoint `src`, or `slot` is not below [`BATCH_SLOTS_MAX`].
    pub fn put(&mut self, src: u32, slot: u32, dst: u16) {
        self.targets[src as usize][slot as usize] = dst;
        self.busy[src as usize] |= 1 << slot;
    }

    /// Takes in the grants of a batch instead of what was here. Grants of endpoints that are not
    /// here are left out.
    pub fn fill(&mut self, grants: &[Grant]) {
        self.clear();
        let slots = grants.iter().fold(0, |all, grant| all | grant.slots);
        match slots >> (2 * LANES) {
            0 => self.paint::<2>(grants),
            _ => self.paint::<8>(grants),
        }
    }

    /// Writes grants of the first so many octets of timeslots. Eight timeslots at a time, whether
    /// they were given or not: to write those that were, one by one, takes longer. Every place
    /// begins as [`NOBODY`], which has all bits, and is written once: so to keep the common bits is
    /// to write it.
    fn paint<const OCTETS: usize>(&mut self, grants: &[Grant]) {
        for grant in grants {
            let src = usize::from(grant.src);
            let Some(row) = self.targets.get_mut(src) else { continue };
            self.busy[src] |= grant.slots;
            let (row, _) = row.as_chunks_mut::<LANES>();
            let row = row.first_chunk_mut::<OCTETS>().expect("it has eight");
            for (at, places) in row.iter_mut().enumerate() {
                let others = &OTHERS[(grant.slots >> (at * LANES)) as usize & 0xff];
                for (place, other) in places.iter_mut().zip(others) {
                    *place &= grant.dst | other;
                }
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
