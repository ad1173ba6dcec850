//! Virtual time in whole picoseconds: at 100 Gbit/s a byte takes 80 ps.

/// Picoseconds per nanosecond.
pub const NANOSECOND: u64 = 1_000;
/// Picoseconds per microsecond.
pub const MICROSECOND: u64 = 1_000 * NANOSECOND;
/// Picoseconds per millisecond.
pub const MILLISECOND: u64 = 1_000 * MICROSECOND;
/// Picoseconds per second.
pub const SECOND: u64 = 1_000 * MILLISECOND;

/// A point of virtual time. 64 bits of picoseconds last 213 days.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The start of every history.
    pub const START: Self = Self(0);
    /// Later than every event.
    pub const END: Self = Self(u64::MAX);

    /// Returns the instant `ps` picoseconds after the start.
    pub const fn from_ps(ps: u64) -> Self {
        Self(ps)
    }

    /// Returns the picoseconds since the start.
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// Returns the whole nanoseconds since the start.
    pub const fn as_ns(self) -> u64 {
        self.0 / NANOSECOND
    }

    /// Returns the instant `ps` picoseconds later; saturates at the end of time.
    #[must_use]
    pub const fn after(self, ps: u64) -> Self {
        Self(self.0.saturating_add(ps))
    }

    /// Returns the picoseconds from `earlier` to `self`, zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
