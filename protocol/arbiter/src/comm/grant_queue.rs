//! Grants of one endpoint that wait to be sent in control packets.

use onepipe_wire::FcpWriter;

use crate::fcp::DestinationSet;
use crate::{BATCH_SLOTS_MAX, Timeslot};

/// Maximum number of waiting rows; beyond, the oldest row is dropped and sent as totals only.
const ROWS_MAX: usize = 4;

/// Grants of one or more successive batches to an endpoint, not sent yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct GrantRow {
    pub start: Timeslot,
    /// The granted timeslots: bit 0 is the first.
    pub pending: u64,
    pub destinations: [u16; BATCH_SLOTS_MAX as usize],
    pub paths: [u8; BATCH_SLOTS_MAX as usize],
}

impl GrantRow {
    const EMPTY: Self = Self {
        start: Timeslot(0),
        pending: 0,
        destinations: [0; BATCH_SLOTS_MAX as usize],
        paths: [0; BATCH_SLOTS_MAX as usize],
    };

    /// Returns the offset of a batch within this row, if the row has space for it.
    fn offset_for(&self, start: Timeslot, slots: u32) -> Option<u32> {
        let offset = u32::try_from(start.0.checked_sub(self.start.0)?).ok()?;
        (offset.checked_add(slots)? <= BATCH_SLOTS_MAX).then_some(offset)
    }

    /// Returns the destination of each granted timeslot.
    fn destinations(&self) -> impl Iterator<Item = u16> + '_ {
        let mut rest = self.pending;
        core::iter::from_fn(move || {
            let slot = rest.trailing_zeros() as usize;
            rest &= rest.checked_sub(1)?;
            Some(self.destinations[slot])
        })
    }
}

/// The rows of one endpoint, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct GrantQueue {
    grants: [GrantRow; ROWS_MAX],
    first: u8,
    count: u8,
}

impl GrantQueue {
    pub const EMPTY: Self = Self { grants: [GrantRow::EMPTY; ROWS_MAX], first: 0, count: 0 };

    /// Asserts that the rows are bounded, and those between two batches disjoint.
    pub fn check_invariants(&self, nodes: u32) {
        assert!(usize::from(self.first) < ROWS_MAX, "the first row exists");
        assert!(usize::from(self.count) <= ROWS_MAX, "the rows are bounded");
        for at in 0..usize::from(self.count) {
            let row = &self.grants[(usize::from(self.first) + at) % ROWS_MAX];
            let exists = |dst: u16| u32::from(dst) < nodes;
            assert!(row.destinations().all(exists), "a grant is for an endpoint");
        }
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// Returns a row with space for `slots` timeslots from `start` on, and the offset of these: the
    /// last row if it has space, or a new one. If all rows are taken the oldest is dropped, and
    /// the callback is called with the destination of each of its timeslots.
    pub fn push(
        &mut self,
        start: Timeslot,
        slots: u32,
        mut wasted: impl FnMut(u16),
    ) -> (&mut GrantRow, u32) {
        let last = usize::from(self.first + self.count.saturating_sub(1)) % ROWS_MAX;
        if let Some(offset) = Some(&self.grants[last])
            .filter(|_| self.count > 0)
            .and_then(|row| row.offset_for(start, slots))
        {
            return (&mut self.grants[last], offset);
        }
        if usize::from(self.count) == ROWS_MAX {
            self.grants[usize::from(self.first)].destinations().for_each(&mut wasted);
            self.pop();
        }
        debug_assert!(usize::from(self.count) < ROWS_MAX, "a row is free");
        let index = usize::from(self.first + self.count) % ROWS_MAX;
        self.count += 1;
        let row = &mut self.grants[index];
        (row.start, row.pending) = (start, 0);
        (row, 0)
    }

    fn pop(&mut self) {
        debug_assert!(self.count > 0, "there is a row");
        self.first = (self.first + 1) % ROWS_MAX as u8;
        self.count -= 1;
    }

    /// Writes as many rows as fit, and calls `granted` with the destination of each timeslot.
    pub fn write(
        &mut self,
        writer: &mut FcpWriter<'_>,
        advertised: &mut DestinationSet,
        mut granted: impl FnMut(u16),
    ) {
        while self.count > 0 {
            let row = &self.grants[usize::from(self.first)];
            let of = |slot: usize| (row.destinations[slot], row.paths[slot]);
            let fits = row.pending.count_ones() as usize <= advertised.free();
            if row.pending != 0 && !(fits && writer.grants(row.start.0, row.pending, of)) {
                return;
            }
            for dst in row.destinations() {
                advertised.push(dst);
                granted(dst);
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

    fn fill(grants: &mut GrantQueue, start: u64, wasted: &mut Vec<u16>) {
        let (row, offset) = grants.push(Timeslot(start), 8, |dst| wasted.push(dst));
        row.pending |= 0b1011_0111 << offset;
        row.destinations[offset as usize..][..8].copy_from_slice(&[7, 8, 7, 0, 7, 8, 0, 7]);
        row.paths[offset as usize..][..8].copy_from_slice(&[1, 1, 1, 0, 2, 1, 0, 1]);
    }

    #[test]
    fn consecutive_batches_share_one_packet() {
        let (mut grants, mut wasted) = (GrantQueue::EMPTY, Vec::new());
        [640, 648, 696, 704].into_iter().for_each(|start| fill(&mut grants, start, &mut wasted));
        let (mut granted, mut written) = ([0u16; 9], Vec::new());
        // A part with grants has 20 bytes and two bits for each of 18 timeslots, or of six.
        for buffer in [8 + 24, 8 + 25, 8 + 25, 100] {
            let mut buffer = std::vec![0; buffer];
            let mut writer = FcpWriter::new(&mut buffer, 0, u64::MAX).expect("a front");
            let mut advertised = DestinationSet::NONE;
            grants.write(&mut writer, &mut advertised, |dst| granted[usize::from(dst)] += 1);
            let bytes = writer.finish(0);
            let read = Fcp::parse(1, &buffer[..bytes]).expect("just written");
            let grants = read.parts().map(|part| {
                let FcpPart::Grants(grants) = part else { panic!("{part:?}") };
                (grants.base(), grants.slots(), grants.grants().count())
            });
            written.push((advertised.as_slice().to_vec(), grants.collect::<Vec<_>>()));
        }
        let [whole, one] = [0xb7 | 0xb7 << 8 | 0xb7 << 56, 0xb7];
        let expected = [
            (std::vec![], std::vec![]),
            (std::vec![7, 8], std::vec![(640, whole, 18)]),
            (std::vec![7, 8], std::vec![(704, one, 6)]),
            (std::vec![], std::vec![]),
        ];
        assert_eq!((&written[..], granted[7], granted[8]), (&expected[..], 16, 8));
        assert!(grants.is_empty() && wasted.is_empty());
    }

    #[test]
    fn drops_the_oldest_grants_on_overflow() {
        let (mut grants, mut wasted) = (GrantQueue::EMPTY, Vec::new());
        (0..6).for_each(|start| fill(&mut grants, 100 * start, &mut wasted));
        assert_eq!(wasted, [7, 8, 7, 7, 8, 7].repeat(2));
    }
}
