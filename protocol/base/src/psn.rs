//! Packet sequence numbers.

/// The sequence number of a packet on one connection (sender process → receiver process).
///
/// Wraps at 2^32; compared with serial-number arithmetic, so it has no `Ord`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Psn(pub u32);

impl Psn {
    /// The first packet of a connection.
    pub const FIRST: Self = Self(0);

    /// Returns the PSN `n` packets later.
    #[must_use]
    pub const fn plus(self, n: u32) -> Self {
        Self(self.0.wrapping_add(n))
    }

    /// Returns the number of packets from `earlier` to `self`; negative when `self` comes first.
    pub const fn since(self, earlier: Self) -> i32 {
        self.0.wrapping_sub(earlier.0) as i32
    }

    /// Returns whether `self` comes before `other`.
    pub const fn is_before(self, other: Self) -> bool {
        self.since(other) < 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_holds_across_wrap() {
        let last = Psn(u32::MAX);
        assert!(last.is_before(last.plus(1)));
        assert_eq!(last.plus(3).since(last), 3);
        assert_eq!(last.since(last.plus(3)), -3);
        assert!(!last.is_before(last));
    }
}
