//! Why a link or an instance counts as dead.

/// Why a link died, as its owner knows it; for an instance, the most certain cause among its
/// links. Travels as three bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Cause {
    /// Not reported.
    #[default]
    Unknown = 0,
    /// Nothing was received for the link timeout.
    TimedOut = 1,
    /// The other end is received, but does not receive this end.
    OneWay = 2,
    /// The operating system reports that the other end is gone.
    Refused = 3,
    /// The other end has left gracefully.
    Left = 4,
    /// A later instance of the same address was received.
    Superseded = 5,
    /// A controller has declared the other end dead.
    Fenced = 6,
}

impl Cause {
    /// Returns the cause for the lowest three of `bits`; a later version may define 7.
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 7 {
            1 => Self::TimedOut,
            2 => Self::OneWay,
            3 => Self::Refused,
            4 => Self::Left,
            5 => Self::Superseded,
            6 => Self::Fenced,
            _ => Self::Unknown,
        }
    }

    /// Returns the three bits that stand for this cause in frames and in the store.
    pub const fn bits(self) -> u8 {
        self as u8
    }

    /// Whether the cause proves that the other end is dead. A timeout does not: the link, or a
    /// switch on the way, may have paused.
    pub const fn is_certain(self) -> bool {
        matches!(self, Self::Refused | Self::Left | Self::Superseded | Self::Fenced)
    }
}

impl core::fmt::Display for Cause {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Unknown => "cause unknown",
            Self::TimedOut => "timed out",
            Self::OneWay => "one-way",
            Self::Refused => "refused by the system",
            Self::Left => "left",
            Self::Superseded => "superseded",
            Self::Fenced => "fenced",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_round_trip() {
        for bits in 0..7 {
            assert_eq!(Cause::from_bits(bits).bits(), bits);
            assert_eq!(Cause::from_bits(bits | 0xf8).bits(), bits, "other bits mean nothing");
        }
        assert_eq!(Cause::from_bits(7), Cause::Unknown);
        assert!(Cause::Left.is_certain() && !Cause::OneWay.is_certain());
    }
}
