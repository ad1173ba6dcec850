//! Versions of the wire format.
//!
//! A node states in its Join which versions it knows, and the switch answers in which one the
//! fabric sends. So that any two versions can do that, three layouts are the same in all of them:
//! the header of Join and JoinAnswer, and both payloads.

/// The version in which this release sends.
pub const VERSION: u8 = 0x20;

/// The first version whose Join and JoinAnswer have the layout that all later ones keep.
pub(crate) const FIRST_VERSION: u8 = 0x20;

/// A range of versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Versions {
    /// The lowest.
    pub min: u8,
    /// The highest, at least `min`.
    pub max: u8,
}

impl Versions {
    /// The versions that this release knows.
    pub const OWN: Self = Self { min: VERSION, max: VERSION };

    /// Returns whether `version` is one of them.
    pub const fn contain(&self, version: u8) -> bool {
        self.min <= version && version <= self.max
    }
}

impl core::fmt::Display for Versions {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self { min, max } if min == max => write!(f, "{min:#04x}"),
            Self { min, max } => write!(f, "{min:#04x} to {max:#04x}"),
        }
    }
}
