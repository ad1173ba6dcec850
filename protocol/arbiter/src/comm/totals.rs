//! What a pair was given of what it has demanded.

/// A pair's timeslots since the reset, modulo 2^16: demanded, and given, which are not more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct PairTotals {
    pub requested: u16,
    pub granted: u16,
}

impl PairTotals {
    /// So many more are given.
    pub fn give(&mut self, more: u16) {
        self.granted = self.granted.wrapping_add(more);
    }

    /// Timeslots that were demanded and not given.
    pub fn pending(self) -> u32 {
        (self.requested.wrapping_sub(self.granted) as i16).max(0) as u32
    }
}
