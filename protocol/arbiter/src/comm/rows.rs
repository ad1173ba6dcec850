//! Granted timeslots of one endpoint on their way into control packets.

use onepipe_wire::FcpWriter;

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

    /// Room behind it for `slots` timeslots from `start` on: how many come before them.
    fn behind(&self, start: Timeslot, slots: u32) -> Option<u32> {
        let offset = u32::try_from(start.0.checked_sub(self.start.0)?).ok()?;
        (offset.checked_add(slots)? <= BATCH_SLOTS_MAX).then_some(offset)
    }

    /// To whom, in each of its timeslots.
    fn destinations(&self) -> impl Iterator<Item = u16> + '_ {
        let mut rest = self.left;
        core::iter::from_fn(move || {
            let slot = rest.trailing_zeros() as usize;
            rest &= rest.checked_sub(1)?;
            Some(self.targets[slot])
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

    /// A row for `slots` timeslots from `start` on, of which none is given yet, and how many of its
    /// timeslots come before them: that of the batch before, if it has room. If there is no row the
    /// oldest is given up: `void` hears to whom its timeslots were.
    pub fn push(
        &mut self,
        (start, slots): (Timeslot, u32),
        mut void: impl FnMut(u16),
    ) -> (&mut Row, u32) {
        let last = usize::from(self.first + self.count.saturating_sub(1)) % ROWS;
        if let Some(offset) = Some(&self.rows[last])
            .filter(|_| self.count > 0)
            .and_then(|row| row.behind(start, slots))
        {
            return (&mut self.rows[last], offset);
        }
        if usize::from(self.count) == ROWS {
            self.rows[usize::from(self.first)].destinations().for_each(&mut void);
            self.pop();
        }
        let place = usize::from(self.first + self.count) % ROWS;
        self.count += 1;
        let row = &mut self.rows[place];
        (row.start, row.left) = (start, 0);
        (row, 0)
    }

    fn pop(&mut self) {
        self.first = (self.first + 1) % ROWS as u8;
        self.count -= 1;
    }

    /// Writes as many rows as fit; `given` hears to whom their timeslots are.
    pub fn write(
        &mut self,
        writer: &mut FcpWriter<'_>,
        told: &mut Told,
        mut given: impl FnMut(u16),
    ) {
        while self.count > 0 {
            let row = &self.rows[usize::from(self.first)];
            let of = |slot: usize| (row.targets[slot], row.paths[slot]);
            let fits = row.left.count_ones() as usize <= told.room();
            if row.left != 0 && !(fits && writer.grants(row.start.0, row.left, of)) {
                return;
            }
            for dst in row.destinations() {
                told.push(dst);
                given(dst);
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

    fn fill(rows: &mut Rows, start: u64, void: &mut Vec<u16>) {
        let (row, offset) = rows.push((Timeslot(start), 8), |dst| void.push(dst));
        row.left |= 0b1011_0111 << offset;
        row.targets[offset as usize..][..8].copy_from_slice(&[7, 8, 7, 0, 7, 8, 0, 7]);
        row.paths[offset as usize..][..8].copy_from_slice(&[1, 1, 1, 0, 2, 1, 0, 1]);
    }

    #[test]
    fn batches_that_follow_each_other_are_told_together_and_whole() {
        let (mut rows, mut void) = (Rows::EMPTY, Vec::new());
        [640, 648, 696, 704].into_iter().for_each(|start| fill(&mut rows, start, &mut void));
        let (mut given, mut written) = ([0u16; 9], Vec::new());
        // A grant is 20 bytes and two bits for each of 18 timeslots, or of six.
        for room in [8 + 24, 8 + 25, 8 + 25, 100] {
            let mut room = std::vec![0; room];
            let mut writer = FcpWriter::new(&mut room, (0, u64::MAX)).expect("a front");
            let mut told = Told::NONE;
            rows.write(&mut writer, &mut told, |dst| given[usize::from(dst)] += 1);
            let bytes = writer.finish(0);
            let read = Fcp::parse(1, &room[..bytes]).expect("just written");
            let grants = read.parts().map(|part| {
                let FcpPart::Grants(grants) = part else { panic!("{part:?}") };
                (grants.base(), grants.slots(), grants.grants().count())
            });
            written.push((told.all().to_vec(), grants.collect::<Vec<_>>()));
        }
        let [whole, one] = [0xb7 | 0xb7 << 8 | 0xb7 << 56, 0xb7];
        let expected = [
            (std::vec![], std::vec![]),
            (std::vec![7, 8], std::vec![(640, whole, 18)]),
            (std::vec![7, 8], std::vec![(704, one, 6)]),
            (std::vec![], std::vec![]),
        ];
        assert_eq!((&written[..], given[7], given[8]), (&expected[..], 16, 8));
        assert!(rows.is_empty() && void.is_empty());
    }

    #[test]
    fn what_waits_too_long_is_given_up_and_said_so() {
        let (mut rows, mut void) = (Rows::EMPTY, Vec::new());
        (0..6).for_each(|start| fill(&mut rows, 100 * start, &mut void));
        assert_eq!(void, [7, 8, 7, 7, 8, 7].repeat(2));
    }
}
