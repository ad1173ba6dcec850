//! The two clocks: [`Mono`] for timers, [`Timestamp`] for message order.

use core::fmt;

/// Wire timestamps count nanoseconds modulo this (2^48 ns = 78.19 h; 1Pipe section 6.1).
pub const WIRE_MODULUS: u64 = 1 << 48;

/// Nanoseconds of a monotonic local clock. For timers; without meaning on other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mono(u64);

impl Mono {
    /// Returns the instant `ns` nanoseconds after this clock's arbitrary origin.
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// Returns the nanoseconds since this clock's arbitrary origin.
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// Returns the instant `ns` later; saturates at the end of time (584 years).
    #[must_use]
    pub const fn after_ns(self, ns: u64) -> Self {
        Self(self.0.saturating_add(ns))
    }

    /// Returns the nanoseconds from `earlier` to `self`, zero when `earlier` is later.
    pub const fn since_ns(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the earlier of two optional deadlines. Compares them in registers: a minimum over an
    /// array would go through memory, at a measurable cost in every call of `poll_timeout`.
    #[inline]
    pub fn earlier(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }
}

/// Nanoseconds of the synchronised clock: the time that orders messages.
///
/// 64 bits inside a machine, so comparison is plain; 48 bits on the wire ([`WireTimestamp`]).
/// There is no default and no zero: a register without a promise holds `None`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// Returns the timestamp `ns` nanoseconds after the origin that all clocks of a fabric share.
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// Returns the nanoseconds since the shared origin.
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// Returns the timestamp `ns` later (modulo 2^64, which no clock reaches).
    #[must_use]
    pub const fn wrapping_add_ns(self, ns: u64) -> Self {
        Self(self.0.wrapping_add(ns))
    }

    /// Returns the timestamp `ns` earlier, not below the origin.
    #[must_use]
    pub const fn saturating_sub_ns(self, ns: u64) -> Self {
        Self(self.0.saturating_sub(ns))
    }

    /// Returns the nanoseconds from `earlier` to `self`, zero when `earlier` is later.
    pub const fn since_ns(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the low 48 bits, as sent on the wire.
    pub const fn to_wire(self) -> WireTimestamp {
        WireTimestamp(self.0 & (WIRE_MODULUS - 1))
    }

    //= spec/ordering.md#R1
    /// Returns the timestamp nearest to `near` whose low 48 bits are `wire` (serial-number
    /// arithmetic as in PAWS, RFC 7323). Exact while the original timestamp and `near` differ by
    /// less than 39.1 h; of two equally near candidates it is the earlier.
    ///
    /// Never wraps: if the nearest candidate lies before the origin or after the end of time, the
    /// nearest one within the range is returned. Otherwise a barrier of another fabric, received by
    /// a clock near its origin, would promise everything.
    #[inline]
    pub const fn from_wire(wire: WireTimestamp, near: Self) -> Self {
        let shifted = wire.0.wrapping_sub(near.0) << 16;
        // Sign-extend the 48-bit difference.
        let delta = (shifted as i64) >> 16;
        match near.0.checked_add_signed(delta) {
            Some(ns) => Self(ns),
            None if delta < 0 => Self(near.0.wrapping_add_signed(delta).wrapping_add(WIRE_MODULUS)),
            None => Self(near.0.wrapping_add_signed(delta).wrapping_sub(WIRE_MODULUS)),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ns", self.0)
    }
}

/// The low 48 bits of a [`Timestamp`]. Has no order: expand it before comparing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WireTimestamp(u64);

impl WireTimestamp {
    /// Returns the low 48 bits of `bits`.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits & (WIRE_MODULUS - 1))
    }

    /// Returns the value, below [`WIRE_MODULUS`].
    pub const fn bits(self) -> u64 {
        self.0
    }
}

/// Both clocks, read together once per batch by the driver (rule D1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Now {
    /// The local clock; never goes back.
    pub mono: Mono,
    /// The synchronised clock; may step either way (a machine defends itself with [`crate::Slew`]).
    pub sync: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    //= spec/ordering.md#R1
    #[test]
    fn timestamp_round_trips_across_48_bit_wrap() {
        let before = Timestamp::from_ns(3 * WIRE_MODULUS - 1);
        let after = before.wrapping_add_ns(2);
        assert_eq!(after.to_wire().bits(), 1);
        assert_eq!(Timestamp::from_wire(after.to_wire(), before), after);
        assert_eq!(Timestamp::from_wire(before.to_wire(), after), before);
    }

    #[test]
    fn equally_near_times_expand_to_the_earlier() {
        let near = Timestamp::from_ns(7 * WIRE_MODULUS);
        let opposite = WireTimestamp::from_bits(WIRE_MODULUS / 2);
        let expanded = Timestamp::from_wire(opposite, near);
        assert_eq!(expanded.as_ns(), 7 * WIRE_MODULUS - WIRE_MODULUS / 2);
    }

    #[test]
    fn expansion_stays_between_origin_and_end() {
        let expand = |bits, near| {
            Timestamp::from_wire(WireTimestamp::from_bits(bits), Timestamp::from_ns(near)).as_ns()
        };
        assert_eq!(expand(WIRE_MODULUS - 1, 5), WIRE_MODULUS - 1);
        assert_eq!(expand(WIRE_MODULUS - 1, WIRE_MODULUS + 5), WIRE_MODULUS - 1);
        assert_eq!(expand(3, u64::MAX - 5), u64::MAX - WIRE_MODULUS + 4);
    }

    proptest! {
        #[test]
        fn expansion_is_exact_within_half_the_range(
            near in prop_oneof![any::<u64>(), 0..WIRE_MODULUS, u64::MAX - WIRE_MODULUS..=u64::MAX],
            ahead in prop_oneof![-(1i64 << 47)..(1i64 << 47), -9i64..9],
        ) {
            let near = Timestamp::from_ns(near);
            if let Some(ns) = near.as_ns().checked_add_signed(ahead) {
                let ts = Timestamp::from_ns(ns);
                prop_assert_eq!(Timestamp::from_wire(ts.to_wire(), near), ts);
            }
        }

        #[test]
        fn expansion_keeps_the_bits_and_stays_near(
            wire in 0..WIRE_MODULUS,
            near in prop_oneof![any::<u64>(), 0..WIRE_MODULUS, u64::MAX - WIRE_MODULUS..=u64::MAX],
        ) {
            let wire = WireTimestamp::from_bits(wire);
            let expanded = Timestamp::from_wire(wire, Timestamp::from_ns(near));
            prop_assert_eq!(expanded.to_wire(), wire);
            let half = WIRE_MODULUS / 2;
            let fits = (half..=u64::MAX - half).contains(&near);
            let limit = if fits { half } else { WIRE_MODULUS };
            prop_assert!(expanded.as_ns().abs_diff(near) <= limit);
        }
    }
}
