//! Timeslots, and who sends to whom in each of a batch.

use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use core::hint::select_unpredictable;

use onepipe_processor::{Line, Lines};

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
        Self(self.0.saturating_add(slots as u64))
    }
}

const SLOTS: usize = BATCH_SLOTS_MAX as usize;
/// Timeslots of a short batch, for which whole rows need not be written.
const SHORT: usize = 16;
/// Timeslots that are written at a time.
const LANES: usize = 8;
/// For each byte: all ones in the places of its zeros, and none in those of its ones.
static OTHERS: [Lanes; 256] = others();

/// The lanes of a vector.
#[repr(align(16))]
struct Lanes([u16; LANES]);

const fn others() -> [Lanes; 256] {
    let mut table = [const { Lanes([u16::MAX; LANES]) }; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut lane = 0;
        while lane < LANES {
            if byte >> lane & 1 == 1 {
                table[byte].0[lane] = 0;
            }
            lane += 1;
        }
        byte += 1;
    }
    table
}

/// Whom an endpoint sends to in each timeslot, if it sends nothing.
const SILENT: Line = Line([NOBODY; SLOTS]);

/// A batch's grants, spread out: whom each endpoint sends to in each timeslot.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// A row for each source, of no account where it sends nothing; behind them one of an endpoint
    /// that never sends.
    rows: Vec<Line>,
    /// In which timeslots each source sends something.
    busy: Vec<u64>,
    /// Timeslots that may be other than [`NOBODY`] in any row.
    slots: usize,
    /// If the processor has them. What is written is the same.
    lines: Option<Lines>,
}

impl Schedule {
    /// Of so many endpoints, with nothing in it.
    pub fn new(nodes: u32) -> Self {
        let nodes = nodes as usize;
        Self {
            rows: alloc::vec![SILENT; nodes + 1],
            busy: alloc::vec![0; nodes],
            slots: 0,
            lines: Lines::detect(),
        }
    }

    /// Nobody sends anything.
    pub fn clear(&mut self) {
        // The rows stay as they are: whoever is given something first has all of its own written.
        self.busy.fill(0);
    }

    /// In this timeslot `src` sends to `dst`.
    ///
    /// # Panics
    /// When there is no endpoint `src`, or `slot` is not below [`BATCH_SLOTS_MAX`].
    pub fn put(&mut self, src: u32, slot: u32, dst: u16) {
        let busy = &mut self.busy[src as usize];
        let row = &mut self.rows[src as usize];
        if *busy == 0 {
            *row = SILENT;
        }
        row.0[slot as usize] = dst;
        *busy |= 1 << slot;
        self.slots = SLOTS;
    }

    /// Takes in the grants of a batch instead of what was here. Grants of endpoints that are not
    /// here are left out, and so are those of no timeslot.
    pub fn fill(&mut self, grants: &[Grant]) {
        self.clear();
        if let Some(lines) = self.lines {
            return self.paint_lines(lines, grants);
        }
        match grants.iter().any(|grant| grant.slots >> SHORT != 0) {
            false => self.paint_all::<SHORT>(grants),
            true => self.paint_all::<SLOTS>(grants),
        }
    }

    /// Takes in grants a row at a time.
    fn paint_lines(&mut self, lines: Lines, grants: &[Grant]) {
        self.slots = SLOTS;
        let silent = self.busy.len();
        for grant in grants {
            let src = usize::from(grant.src);
            let Some(busy) = self.busy.get_mut(src) else { continue };
            let before = select_unpredictable(*busy == 0, silent, src);
            *busy |= grant.slots;
            lines.paint(&mut self.rows, (before, src), grant.slots, grant.dst);
        }
    }

    /// Takes in grants of the first so many timeslots.
    fn paint_all<const COUNT: usize>(&mut self, grants: &[Grant]) {
        if self.slots > COUNT {
            self.rows.fill(SILENT);
        }
        self.slots = COUNT;
        for grant in grants {
            let src = usize::from(grant.src);
            let silent = self.busy.len();
            let Some(busy) = self.busy.get_mut(src) else { continue };
            let before = select_unpredictable(*busy == 0, silent, src);
            *busy |= grant.slots;
            self.paint::<COUNT>(grant, before);
        }
    }

    /// Writes a grant into its source's row, over what is in row `before`: all timeslots, whether
    /// they were given or not, as to write those that were, one by one, takes longer. A place that
    /// nobody has is [`NOBODY`], which has all bits, and each is given once: so to keep the common
    /// bits is to write it.
    #[inline]
    fn paint<const COUNT: usize>(&mut self, grant: &Grant, before: usize) {
        let src = usize::from(grant.src);
        for at in (0..COUNT).step_by(LANES) {
            let Lanes(others) = &OTHERS[(grant.slots >> at) as usize & 0xff];
            let mut places: [u16; LANES] =
                *self.rows[before].0[at..].first_chunk().expect("it has so many");
            for (place, other) in places.iter_mut().zip(others) {
                *place &= grant.dst | other;
            }
            *self.rows[src].0[at..].first_chunk_mut().expect("it has so many") = places;
        }
    }

    /// Whom `src` sends to in each timeslot of the batch, [`NOBODY`] where to none.
    ///
    /// # Panics
    /// When there is no endpoint `src`.
    pub fn of(&self, src: u32) -> &[u16; SLOTS] {
        let silent = self.busy.len();
        let row = if self.busy[src as usize] == 0 { silent } else { src as usize };
        &self.rows[row].0
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
        self.busy.len() as u32
    }

    /// The pairs of one timeslot, counted from the begin of the batch, by ascending source.
    ///
    /// # Panics
    /// When asked for the next, if `slot` is not below [`BATCH_SLOTS_MAX`].
    pub fn pairs(&self, slot: u32) -> impl Iterator<Item = (u16, u16)> {
        (0..self.nodes())
            .map(move |src| (src as u16, self.of(src)[slot as usize]))
            .filter(|(_, dst)| *dst != NOBODY)
    }

    /// All rows, as they are to be read.
    fn read(&self) -> impl Iterator<Item = &[u16; SLOTS]> {
        (0..self.nodes()).map(|src| self.of(src))
    }
}

impl PartialEq for Schedule {
    fn eq(&self, other: &Self) -> bool {
        self.read().eq(other.read())
    }
}

impl Eq for Schedule {}

impl Hash for Schedule {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.read().for_each(|row| row.hash(state));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_processor_without_the_instructions_writes_the_same(
            batches in prop::collection::vec(
                prop::collection::vec((0u16..6, 0u16..5, any::<u64>(), 1u32..=64), 0..40),
                1..6,
            ),
        ) {
            let mut able = Schedule::new(5);
            let mut plain = Schedule { lines: None, ..able.clone() };
            for batch in batches {
                // Of a source each timeslot once.
                let mut idle = [u64::MAX; 6];
                let grants: Vec<Grant> = batch
                    .into_iter()
                    .map(|(src, dst, slots, count)| {
                        let slots = slots & idle[usize::from(src)] & u64::MAX >> (64 - count);
                        idle[usize::from(src)] ^= slots;
                        Grant { src, dst, slots }
                    })
                    .collect();
                able.fill(&grants);
                plain.fill(&grants);
                prop_assert_eq!(&able, &plain);
            }
        }
    }

    #[test]
    fn nothing_is_left_of_the_batch_before() {
        for lines in [Lines::detect(), None] {
            forgets_the_batch_before(lines);
        }
    }

    fn forgets_the_batch_before(lines: Option<Lines>) {
        let grant = |src, dst, slots| Grant { src, dst, slots };
        let before = [grant(0, 2, u64::MAX), grant(1, 0, 0xff), grant(9, 1, 1)];
        let after = [grant(1, 2, 1 << 63 | 2), grant(2, 0, 4), grant(1, 0, 4)];
        let mut used = Schedule { lines, ..Schedule::new(3) };
        used.fill(&before);
        assert_eq!(used.of(0), &[2; 64]);
        used.fill(&after);
        let mut fresh = Schedule { lines, ..Schedule::new(3) };
        fresh.fill(&after);
        assert_eq!(used, fresh);
        assert_eq!(used.of(0), &[NOBODY; 64]);
        assert_eq!((used.of(1)[1], used.of(1)[2], used.of(1)[3]), (2, 0, NOBODY));
        assert_eq!(used.pairs(2).collect::<Vec<_>>(), [(1, 0), (2, 0)]);
        // A short one behind a long one, and again.
        let short = [grant(2, 1, 1)];
        used.fill(&short);
        fresh.fill(&short);
        assert_eq!((used.of(2)[0], used.of(2)[2], &used), (1, NOBODY, &fresh));
        used.put(2, 40, 0);
        used.fill(&short);
        assert_eq!(used, fresh);
        used.clear();
        used.put(1, 5, 0);
        assert_eq!(used.busy(1), 1 << 5);
        assert_eq!(used.of(1).iter().filter(|dst| **dst != NOBODY).count(), 1);
        assert_ne!(used, fresh);
    }
}
