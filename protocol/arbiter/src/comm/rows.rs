//! Granted timeslots of one endpoint on their way into control packets.

use onepipe_wire::{FcpGrant, FcpWriter};

use crate::fcp::Told;
use crate::timeslot::{BATCH_SLOTS_MAX, Timeslot};

/// Batches that wait to be told at most; of more the oldest are told as totals only.
const ROWS: usize = 4;

/// What an endpoint was given in one batch and has not been told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Row {
    pub start: Timeslot,
    /// In which timeslots: bit 0 is the first.
    pub left: u64,
    pub targets: [u16; BATCH_SLOTS_MAX as usize],
    pub paths: [u8; BATCH_SLOTS_MAX as usize],
}

impl Row {
    const EMPTY: Self = Self {
        start: Timeslot(0),
        left: 0,
        targets: [0; BATCH_SLOTS_MAX as usize],
        paths: [0; BATCH_SLOTS_MAX as usize],
    };

    /// What goes to the same destination by the same path, together; in the order of their first
    /// timeslots.
    fn groups(&self) -> Groups {
        let mut groups = Groups::EMPTY;
        let mut rest = self.left;
        while rest != 0 {
            let slot = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            groups.add(self.targets[slot], self.paths[slot], 1 << slot);
        }
        groups
    }
}

/// Keys that are compared at a time.
const LANES: usize = 8;

/// The timeslots of a row by destination and path.
struct Groups {
    count: usize,
    keys: [u32; BATCH_SLOTS_MAX as usize],
    slots: [u64; BATCH_SLOTS_MAX as usize],
}

impl Groups {
    const EMPTY: Self = Self {
        count: 0,
        keys: [u32::MAX; BATCH_SLOTS_MAX as usize],
        slots: [0; BATCH_SLOTS_MAX as usize],
    };

    #[inline]
    fn add(&mut self, dst: u16, path: u8, slots: u64) {
        let key = u32::from(dst) << 8 | u32::from(path);
        // All lanes at once, without a branch for each: most rows have many destinations.
        let whole = self.keys[..self.count.next_multiple_of(LANES)].chunks_exact(LANES);
        for (place, keys) in whole.enumerate() {
            let like = keys.iter().enumerate();
            let like = like.fold(0u32, |like, (lane, of)| like | u32::from(*of == key) << lane);
            if like != 0 {
                self.slots[place * LANES + like.trailing_zeros() as usize] |= slots;
                return;
            }
        }
        (self.keys[self.count], self.slots[self.count]) = (key, slots);
        self.count += 1;
    }

    fn grants(&self) -> impl Iterator<Item = FcpGrant> {
        let all = self.keys[..self.count].iter().zip(&self.slots);
        all.map(|(key, slots)| FcpGrant {
            dst: (key >> 8) as u16,
            total: 0,
            path: *key as u8,
            slots: *slots,
        })
    }
}

/// The rows of one endpoint, the oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Rows {
    rows: [Row; ROWS],
    first: u8,
    count: u8,
}

impl Rows {
    pub const EMPTY: Self = Self { rows: [Row::EMPTY; ROWS], first: 0, count: 0 };

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// A place for one more. If there is none, the oldest row is given up: `void` hears what was in
    /// it.
    pub fn push(&mut self, mut void: impl FnMut(FcpGrant)) -> &mut Row {
        if usize::from(self.count) == ROWS {
            self.rows[usize::from(self.first)].groups().grants().for_each(&mut void);
            self.pop();
        }
        let place = usize::from(self.first + self.count) % ROWS;
        self.count += 1;
        &mut self.rows[place]
    }

    fn pop(&mut self) {
        self.first = (self.first + 1) % ROWS as u8;
        self.count -= 1;
    }

    /// Writes as much as fits; `total` answers how many timeslots a destination was ever given when
    /// so many more are.
    pub fn write(
        &mut self,
        writer: &mut FcpWriter<'_>,
        told: &mut Told,
        mut total: impl FnMut(u16, u16) -> u16,
    ) {
        while self.count > 0 {
            let row = &mut self.rows[usize::from(self.first)];
            for grant in row.groups().grants() {
                if told.is_full() {
                    return;
                }
                let given = grant.slots.count_ones() as u16;
                let counted = FcpGrant { total: total(grant.dst, given), ..grant };
                if !writer.grant(row.start.0, counted) {
                    total(grant.dst, given.wrapping_neg());
                    return;
                }
                row.left &= !grant.slots;
                told.push(grant.dst);
            }
            self.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use onepipe_wire::{Fcp, FcpPart};

    use super::*;

    fn fill(rows: &mut Rows, start: u64, void: &mut Vec<FcpGrant>) {
        let row = rows.push(|grant| void.push(grant));
        *row = Row { start: Timeslot(start), left: 0b1011_0111, ..Row::EMPTY };
        row.targets[..8].copy_from_slice(&[7, 8, 7, 0, 7, 8, 0, 7]);
        row.paths[..8].copy_from_slice(&[1, 1, 1, 0, 2, 1, 0, 1]);
    }

    #[test]
    fn a_row_is_told_by_destination_and_path_as_far_as_it_fits() {
        let (mut rows, mut void) = (Rows::EMPTY, Vec::new());
        fill(&mut rows, 640, &mut void);
        let mut given = [0u16; 9];
        let mut written = Vec::new();
        for room in [20 + 8 + 6 + 3, 20 + 7, 100] {
            let mut room = std::vec![0; room];
            let mut writer = FcpWriter::new(&mut room, 1, (0, 0)).expect("a front");
            let mut told = Told::NONE;
            rows.write(&mut writer, &mut told, |dst, more| {
                let to = &mut given[usize::from(dst)];
                *to = to.wrapping_add(more);
                *to
            });
            let octets = writer.finish(0);
            for part in Fcp::parse(&room[..octets]).expect("just written").parts() {
                let FcpPart::Grants(640, entries) = part else { panic!("{part:?}") };
                written.extend(entries.grants());
            }
        }
        let grant = |dst, total, path, slots| FcpGrant { dst, total, path, slots };
        let expected =
            [grant(7, 3, 1, 0b1000_0101), grant(8, 2, 1, 0b10_0010), grant(7, 4, 2, 0b1_0000)];
        assert_eq!((written, given[7], given[8]), (expected.to_vec(), 4, 2));
        assert!(rows.is_empty() && void.is_empty());
    }

    #[test]
    fn what_waits_too_long_is_given_up_and_said_so() {
        let (mut rows, mut void) = (Rows::EMPTY, Vec::new());
        (0..6).for_each(|start| fill(&mut rows, start, &mut void));
        assert_eq!(void.len(), 6);
        assert_eq!(void.iter().map(|grant| grant.slots.count_ones()).sum::<u32>(), 12);
    }
}
