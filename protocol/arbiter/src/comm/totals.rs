//! What a pair was given of what it has demanded.

/// A pair's timeslots since the reset, modulo 2^16: demanded, and given, which are not more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Totals {
    pub asked: u16,
    pub given: u16,
}

impl Totals {
    /// So many more are given.
    pub fn give(&mut self, more: u16) {
        self.given = self.given.wrapping_add(more);
    }

    /// Timeslots that were demanded and not given.
    pub fn owed(self) -> u32 {
        (self.asked.wrapping_sub(self.given) as i16).max(0) as u32
    }
}
