//! The messages of a burst for one destination.

/// Marks the end of a chain of messages.
pub(crate) const END: u32 = u32::MAX;

/// Messages of the current burst for one destination, linked in the order of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Chain {
    pub first: u32,
    pub last: u32,
}

impl Chain {
    pub const EMPTY: Self = Self { first: END, last: END };

    #[inline]
    pub fn is_empty(self) -> bool {
        self.first == END
    }

    /// Returns whether the chain has one message.
    #[inline]
    pub fn is_single(self) -> bool {
        self.first == self.last && !self.is_empty()
    }
}
