//! Timeslot numbers, and the matching of each timeslot in a batch.

use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use core::hint::select_unpredictable;

use onepipe_simd::{MaskedCopy, WordBlock};

/// Maximum number of timeslots of a batch: one bit each in a word.
pub const BATCH_SLOTS_MAX: u32 = 64;

/// In a [`Schedule`]: the endpoint sends nothing in this timeslot.
pub const NO_DESTINATION: u16 = u16::MAX;

/// The number of a timeslot, counted from the origin of synchronised time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timeslot(pub u64);

impl Timeslot {
    /// Returns the timeslot `slots` later.
    pub const fn plus(self, slots: u32) -> Self {
        Self(self.0.saturating_add(slots as u64))
    }
}

/// Timeslots granted to a pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Grant {
    /// The source.
    pub src: u16,
    /// The destination.
    pub dst: u16,
    /// The granted timeslots: bit 0 is the first of the batch.
    pub slots: u64,
}

const SLOTS: usize = BATCH_SLOTS_MAX as usize;
/// Timeslots of a short batch, for which only a part of each row is written.
const SHORT: usize = 16;
/// Timeslots that are written at a time.
const LANES: usize = 8;
/// For each byte: all ones in the lanes of its zero bits, zero in the lanes of its one bits.
static UNSELECTED: [Lanes; 256] = unselected();

/// The lanes of a SIMD vector.
#[repr(align(16))]
struct Lanes([u16; LANES]);

const fn unselected() -> [Lanes; 256] {
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

/// The row of an endpoint that sends nothing.
const IDLE_ROW: WordBlock = WordBlock([NO_DESTINATION; SLOTS]);

/// The grants of a batch as a table: the destination of each endpoint in each timeslot.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// A row for each source, valid only if its busy mask is not zero; the last row is that of an
    /// endpoint that never sends.
    rows: Vec<WordBlock>,
    /// The timeslots in which each source sends, one bit each.
    busy: Vec<u64>,
    /// Timeslots that may differ from [`NO_DESTINATION`] in any row.
    slots: usize,
    /// SIMD row writes, if the CPU supports them. The result is the same without.
    lines: Option<MaskedCopy>,
}

impl Schedule {
    /// Creates an empty schedule of `nodes` endpoints.
    pub fn new(nodes: u32) -> Self {
        let nodes = nodes as usize;
        Self {
            rows: alloc::vec![IDLE_ROW; nodes + 1],
            busy: alloc::vec![0; nodes],
            slots: 0,
            lines: MaskedCopy::detect(),
        }
    }

    /// Removes all grants.
    pub fn clear(&mut self) {
        // Rows are left as they are: the first grant of a source rewrites its whole row.
        self.busy.fill(0);
    }

    /// Sets the destination of `src` in timeslot `slot` to `dst`.
    ///
    /// # Panics
    /// When `src` does not exist, or `slot` is not below [`BATCH_SLOTS_MAX`].
    pub fn put(&mut self, src: u32, slot: u32, dst: u16) {
        let busy = &mut self.busy[src as usize];
        let row = &mut self.rows[src as usize];
        if *busy == 0 {
            *row = IDLE_ROW;
        }
        row.0[slot as usize] = dst;
        *busy |= 1 << slot;
        self.slots = SLOTS;
    }

    /// Replaces the contents by the grants of a batch. Grants of unknown sources and grants without
    /// timeslots are ignored.
    pub fn fill(&mut self, grants: &[Grant]) {
        self.clear();
        if let Some(lines) = self.lines {
            return self.fill_simd(lines, grants);
        }
        match grants.iter().any(|grant| grant.slots >> SHORT != 0) {
            false => self.fill_portable::<SHORT>(grants),
            true => self.fill_portable::<SLOTS>(grants),
        }
    }

    /// Writes each grant with one SIMD operation.
    fn fill_simd(&mut self, lines: MaskedCopy, grants: &[Grant]) {
        self.slots = SLOTS;
        let idle_row = self.busy.len();
        for grant in grants {
            let src = usize::from(grant.src);
            let Some(busy) = self.busy.get_mut(src) else { continue };
            let before = select_unpredictable(*busy == 0, idle_row, src);
            *busy |= grant.slots;
            lines.copy_masked(&mut self.rows, before, src, grant.slots, grant.dst);
        }
    }

    /// Writes the first `COUNT` timeslots of each grant without SIMD.
    fn fill_portable<const COUNT: usize>(&mut self, grants: &[Grant]) {
        if self.slots > COUNT {
            self.rows.fill(IDLE_ROW);
        }
        self.slots = COUNT;
        for grant in grants {
            let src = usize::from(grant.src);
            let idle_row = self.busy.len();
            let Some(busy) = self.busy.get_mut(src) else { continue };
            let before = select_unpredictable(*busy == 0, idle_row, src);
            *busy |= grant.slots;
            self.write_row::<COUNT>(grant, before);
        }
    }

    /// Merges a grant into its source's row, starting from the contents of row `before`. Writes all
    /// lanes, granted or not, which is faster than writing the granted ones one by one. A free lane
    /// holds [`NO_DESTINATION`], which has all bits set, and each timeslot is granted once, so a
    /// bitwise AND writes the destination.
    #[inline]
    fn write_row<const COUNT: usize>(&mut self, grant: &Grant, before: usize) {
        let src = usize::from(grant.src);
        for at in (0..COUNT).step_by(LANES) {
            let Lanes(unselected) = &UNSELECTED[(grant.slots >> at) as usize & 0xff];
            let mut lanes: [u16; LANES] =
                *self.rows[before].0[at..].first_chunk().expect("a row has 64 lanes");
            for (lane, mask) in lanes.iter_mut().zip(unselected) {
                *lane &= grant.dst | mask;
            }
            *self.rows[src].0[at..].first_chunk_mut().expect("a row has 64 lanes") = lanes;
        }
    }

    /// Returns the destination of `src` in each timeslot, or [`NO_DESTINATION`].
    ///
    /// # Panics
    /// When `src` does not exist.
    pub fn of(&self, src: u32) -> &[u16; SLOTS] {
        let idle_row = self.busy.len();
        let row = if self.busy[src as usize] == 0 { idle_row } else { src as usize };
        &self.rows[row].0
    }

    /// Returns the timeslots in which `src` sends: bit 0 is the first of the batch.
    ///
    /// # Panics
    /// When `src` does not exist.
    pub fn busy(&self, src: u32) -> u64 {
        self.busy[src as usize]
    }

    /// Returns the number of endpoints.
    pub fn nodes(&self) -> u32 {
        self.busy.len() as u32
    }

    /// Returns the pairs of timeslot `slot` of the batch, in ascending order of their sources.
    ///
    /// # Panics
    /// On the first `next`, if `slot` is not below [`BATCH_SLOTS_MAX`].
    pub fn pairs(&self, slot: u32) -> impl Iterator<Item = (u16, u16)> {
        (0..self.nodes())
            .map(move |src| (src as u16, self.of(src)[slot as usize]))
            .filter(|(_, dst)| *dst != NO_DESTINATION)
    }

    /// Returns the effective rows: stale rows of sources without grants are replaced.
    fn rows_read(&self) -> impl Iterator<Item = &[u16; SLOTS]> {
        (0..self.nodes()).map(|src| self.of(src))
    }
}

impl PartialEq for Schedule {
    fn eq(&self, other: &Self) -> bool {
        self.rows_read().eq(other.rows_read())
    }
}

impl Eq for Schedule {}

impl Hash for Schedule {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.rows_read().for_each(|row| row.hash(state));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn portable_and_simd_schedules_are_equal(
            batches in prop::collection::vec(
                prop::collection::vec((0u16..6, 0u16..5, any::<u64>(), 1u32..=64), 0..40),
                1..6,
            ),
        ) {
            let mut simd = Schedule::new(5);
            let mut portable = Schedule { lines: None, ..simd.clone() };
            for batch in batches {
                // Each timeslot of a source is granted at most once.
                let mut free = [u64::MAX; 6];
                let grants: Vec<Grant> = batch
                    .into_iter()
                    .map(|(src, dst, slots, count)| {
                        let slots = slots & free[usize::from(src)] & u64::MAX >> (64 - count);
                        free[usize::from(src)] ^= slots;
                        Grant { src, dst, slots }
                    })
                    .collect();
                simd.fill(&grants);
                portable.fill(&grants);
                prop_assert_eq!(&simd, &portable);
            }
        }
    }

    #[test]
    fn fill_discards_the_previous_batch() {
        for lines in [MaskedCopy::detect(), None] {
            check_fill_discards_the_previous_batch(lines);
        }
    }

    fn check_fill_discards_the_previous_batch(lines: Option<MaskedCopy>) {
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
        assert_eq!(used.of(0), &[NO_DESTINATION; 64]);
        assert_eq!((used.of(1)[1], used.of(1)[2], used.of(1)[3]), (2, 0, NO_DESTINATION));
        assert_eq!(used.pairs(2).collect::<Vec<_>>(), [(1, 0), (2, 0)]);
        // A short batch after a long one, and again.
        let short = [grant(2, 1, 1)];
        used.fill(&short);
        fresh.fill(&short);
        assert_eq!((used.of(2)[0], used.of(2)[2], &used), (1, NO_DESTINATION, &fresh));
        used.put(2, 40, 0);
        used.fill(&short);
        assert_eq!(used, fresh);
        used.clear();
        used.put(1, 5, 0);
        assert_eq!(used.busy(1), 1 << 5);
        assert_eq!(used.of(1).iter().filter(|dst| **dst != NO_DESTINATION).count(), 1);
        assert_ne!(used, fresh);
    }
}
