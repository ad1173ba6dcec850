//! A calendar of granted timeslots that have not begun.

use alloc::vec::Vec;

use crate::{NO_DESTINATION, Timeslot};

/// Why a granted timeslot was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Refused {
    /// It began too long ago.
    Late,
    /// It begins too far ahead.
    Ahead,
    /// It is taken: an endpoint sends to one destination per timeslot.
    Duplicate,
}

/// The grant of a timeslot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SlotGrant {
    pub dst: u16,
    pub path: u8,
}

/// The granted timeslots around the present, each at its number modulo the number of entries.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SlotCalendar {
    entries: Vec<SlotGrant>,
    /// One bit for each entry that is taken.
    taken: Vec<u64>,
    /// All taken timeslots are in `first..=last`.
    first: Timeslot,
    last: Timeslot,
    count: u32,
    late: u64,
    ahead: u64,
}

impl SlotCalendar {
    /// Creates a calendar for timeslots from `late` before the present to `ahead` after it.
    pub fn new(late: u32, ahead: u32) -> Self {
        let entries = (late + ahead + 2).next_power_of_two().max(64) as usize;
        Self {
            entries: alloc::vec![SlotGrant { dst: NO_DESTINATION, path: 0 }; entries],
            taken: alloc::vec![0; entries / 64],
            first: Timeslot(0),
            last: Timeslot(0),
            count: 0,
            late: u64::from(late),
            ahead: u64::from(ahead),
        }
    }

    /// Asserts that the taken entries are those between the first and the last timeslot.
    pub fn check_invariants(&self) {
        let taken: u32 = self.taken.iter().map(|word| word.count_ones()).sum();
        assert_eq!(taken, self.count, "the granted timeslots");
        assert!(self.entries.len().is_power_of_two(), "an index is a mask");
        if self.count > 0 {
            let reach = self.last.0.checked_sub(self.first.0).expect("the first is not later");
            assert!(reach < self.entries.len() as u64, "no two timeslots share an entry");
            assert!(u64::from(self.count) <= reach + 1, "each timeslot is granted once");
        }
    }

    /// Returns the number of granted timeslots.
    pub fn count(&self) -> u32 {
        self.count
    }

    fn index_of(&self, slot: Timeslot) -> usize {
        slot.0 as usize & (self.entries.len() - 1)
    }

    //= spec/arbiter.md#R5
    /// Records the grant of `slot`.
    pub fn record_grant(
        &mut self,
        now: Timeslot,
        slot: Timeslot,
        what: SlotGrant,
    ) -> Result<(), Refused> {
        if slot.0.saturating_add(self.late) < now.0 {
            return Err(Refused::Late);
        }
        if slot.0 > now.0.saturating_add(self.ahead) {
            return Err(Refused::Ahead);
        }
        let index = self.index_of(slot);
        let (first, last) = match self.count {
            0 => (slot, slot),
            _ => (self.first.min(slot), self.last.max(slot)),
        };
        if last.0 - first.0 >= self.entries.len() as u64 {
            // The clock has stepped; the entries have to be taken first.
            return Err(if slot > self.first { Refused::Ahead } else { Refused::Late });
        }
        if self.taken[index / 64] >> (index % 64) & 1 == 1 {
            return Err(Refused::Duplicate);
        }
        self.taken[index / 64] |= 1 << (index % 64);
        self.entries[index] = what;
        (self.first, self.last) = (first, last);
        self.count += 1;
        Ok(())
    }

    /// Returns the first granted timeslot.
    pub fn next(&self) -> Option<Timeslot> {
        if self.count == 0 {
            return None;
        }
        let begin = self.index_of(self.first);
        let (mut word, bit) = (begin / 64, begin % 64);
        let mut rest = self.taken[word] >> bit << bit;
        let mut steps = 0;
        while rest == 0 {
            steps += 1;
            debug_assert!(steps <= self.taken.len(), "the calendar holds a grant");
            word = (word + 1) % self.taken.len();
            rest = self.taken[word];
        }
        let index = word * 64 + rest.trailing_zeros() as usize;
        let ahead = index.wrapping_sub(begin) & (self.entries.len() - 1);
        Some(Timeslot(self.first.0 + ahead as u64))
    }

    //= spec/arbiter.md#R5
    /// Takes the first grant if its timeslot has begun, and returns whether that was too long ago.
    pub fn take(&mut self, now: Timeslot) -> Option<(Timeslot, SlotGrant, bool)> {
        let slot = self.next()?;
        // Saves the next search.
        self.first = slot;
        if slot > now {
            return None;
        }
        let index = self.index_of(slot);
        self.taken[index / 64] &= !(1 << (index % 64));
        self.count -= 1;
        Some((slot, self.entries[index], slot.0.saturating_add(self.late) < now.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHAT: SlotGrant = SlotGrant { dst: 3, path: 1 };

    //= spec/arbiter.md#R5
    #[test]
    fn grants_come_out_in_order_when_they_begin() {
        let mut calendar = SlotCalendar::new(16, 64);
        let now = Timeslot(1_000);
        let mut record_grant = |slot| calendar.record_grant(now, Timeslot(slot), WHAT);
        assert_eq!([record_grant(1_064), record_grant(984), record_grant(1_001)], [Ok(()); 3]);
        assert_eq!(
            (record_grant(1_065), record_grant(983)),
            (Err(Refused::Ahead), Err(Refused::Late))
        );
        assert_eq!(record_grant(1_001), Err(Refused::Duplicate));
        assert_eq!(calendar.next(), Some(Timeslot(984)));
        assert_eq!(calendar.take(now), Some((Timeslot(984), WHAT, false)));
        assert_eq!(calendar.take(now), None);
        assert_eq!(calendar.next(), Some(Timeslot(1_001)));
        assert_eq!(calendar.take(Timeslot(1_018)), Some((Timeslot(1_001), WHAT, true)));
        assert_eq!((calendar.take(Timeslot(1_063)), calendar.count()), (None, 1));
        assert_eq!(calendar.take(Timeslot(1_064)), Some((Timeslot(1_064), WHAT, false)));
        assert_eq!((calendar.next(), calendar.count()), (None, 0));
        assert_eq!(
            calendar.record_grant(Timeslot(9), Timeslot(9), WHAT),
            Ok(()),
            "the clock has stepped back"
        );
        assert_eq!(calendar.next(), Some(Timeslot(9)));
    }

    #[test]
    fn no_grant_is_used_early_when_the_clock_steps_back() {
        let mut calendar = SlotCalendar::new(16, 64);
        assert_eq!(calendar.record_grant(Timeslot(1_000), Timeslot(1_000), WHAT), Ok(()));
        assert_eq!(calendar.record_grant(Timeslot(1_000), Timeslot(1_064), WHAT), Ok(()));
        // The clock steps back by 50 timeslots, and a recent timeslot is granted.
        let now = Timeslot(950);
        assert_eq!(
            calendar.record_grant(now, Timeslot(934), WHAT),
            Err(Refused::Late),
            "beyond the calendar, together with 1064"
        );
        assert_eq!(calendar.record_grant(now, Timeslot(937), WHAT), Ok(()));
        let mut taken = [(0, 0); 4];
        let mut count = 0;
        for now in 950..1_100 {
            while let Some((slot, ..)) = calendar.take(Timeslot(now)) {
                taken[count] = (slot.0, now);
                count += 1;
            }
        }
        assert_eq!(taken[..count], [(937, 950), (1_000, 1_000), (1_064, 1_064)]);
    }
}
