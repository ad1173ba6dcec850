//! Requested and granted timeslots of a pair.

/// Timeslots of a pair since the reset, modulo 2^16. The granted total never exceeds the requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct PairTotals {
    pub requested: u16,
    pub granted: u16,
}

impl PairTotals {
    /// Adds granted timeslots.
    pub fn add_granted(&mut self, more: u16) {
        self.granted = self.granted.wrapping_add(more);
    }

    /// Returns the timeslots requested and not granted.
    pub fn pending(self) -> u32 {
        (self.requested.wrapping_sub(self.granted) as i16).max(0) as u32
    }
}
