//! Conversion between synchronised time and timeslot numbers.

use onepipe_base::{Mono, Now, Timestamp};

use crate::Timeslot;

/// Maximum length of a timeslot, ns.
pub(crate) const SLOT_NS_MAX: u64 = 1 << 30;

/// Maps synchronised time to timeslots: timeslot `n` begins `n` timeslot lengths after the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotClock {
    slot_ns: u64,
}

impl SlotClock {
    /// Creates a clock with timeslots of `slot_ns` nanoseconds, at least 1.
    pub const fn new(slot_ns: u64) -> Self {
        Self { slot_ns: if slot_ns == 0 { 1 } else { slot_ns } }
    }

    /// Returns the timeslot that contains `time`.
    #[inline]
    pub const fn at(self, time: Timestamp) -> Timeslot {
        Timeslot(time.as_ns() / self.slot_ns)
    }

    /// Returns the time at which `slot` begins.
    #[inline]
    pub const fn begin(self, slot: Timeslot) -> Timestamp {
        Timestamp::from_ns(slot.0.saturating_mul(self.slot_ns))
    }

    /// Returns the local time at which `slot` begins, given that `sync` is the time of `now`.
    pub const fn mono(self, now: Now, sync: Timestamp, slot: Timeslot) -> Mono {
        now.mono.after_ns(self.begin(slot).since_ns(sync))
    }

    /// Returns the number of timeslots that cover `ns`, rounded up.
    pub const fn slots(self, ns: u64) -> u64 {
        ns.div_ceil(self.slot_ns)
    }
}

/// Bits of a timeslot number in a frame.
const WIRE_BITS: u32 = 48;

/// Returns the timeslot nearest to `near` whose low 48 bits are `wire`. The result saturates at
/// timeslot 0 and at the last one.
pub(crate) const fn expand(wire: u64, near: Timeslot) -> Timeslot {
    let unused = u64::BITS - WIRE_BITS;
    let delta = (wire.wrapping_sub(near.0) << unused) as i64 >> unused;
    Timeslot(near.0.saturating_add_signed(delta))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_between_times_and_timeslots() {
        let clock = SlotClock::new(1_250);
        let begin = clock.begin(Timeslot(7));
        assert_eq!(clock.at(begin), Timeslot(7));
        assert_eq!(clock.at(begin.saturating_sub_ns(1)), Timeslot(6));
        assert_eq!((clock.slots(1_250), clock.slots(1_251)), (1, 2));
        let now = Now { mono: Mono::from_ns(50), sync: Timestamp::from_ns(8_000) };
        assert_eq!(clock.mono(now, now.sync, Timeslot(7)), Mono::from_ns(50 + 750));
        assert_eq!(clock.mono(now, now.sync, Timeslot(1)), now.mono, "already begun");
    }

    #[test]
    fn expands_48_bit_timeslot_numbers() {
        let wrap = 1 << WIRE_BITS;
        for (slot, near) in [(5, 4), (3 * wrap + 1, 3 * wrap - 1), (3 * wrap - 1, 3 * wrap + 1)] {
            assert_eq!(expand(slot % wrap, Timeslot(near)), Timeslot(slot));
        }
        assert_eq!(expand(wrap - 40, Timeslot(7)), Timeslot(0), "there was no such timeslot");
        assert_eq!(expand(5, Timeslot(u64::MAX)), Timeslot(u64::MAX), "there will be none");
    }
}
