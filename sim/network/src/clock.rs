//! Clocks of a node with offset, drift and steps.

use onepipe_base::{Mono, Now, Timestamp, WIRE_MODULUS};
use onepipe_sim_engine::{Instant, NANOSECOND, Random};

/// Number of fraction bits of the drift.
const DRIFT_BITS: u32 = 32;

/// Both clocks of a node as functions of virtual time.
///
/// One oscillator drives both clocks, so drift affects both. Offset and steps affect only the
/// synchronized clock: the local clock never steps and never runs backwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clock {
    mono_origin_ns: u64,
    sync_origin_ns: u64,
    /// Sum of the steps since the last synchronization, in ns.
    stepped_ns: i64,
    /// Nanoseconds gained per nanosecond, times 2^DRIFT_BITS.
    drift: i64,
}

/// The error of a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockError {
    /// Offset of the synchronized clock in ns; positive: the clock is ahead.
    pub offset_ns: i64,
    /// Rate error of the oscillator in parts per billion (500 ppm = 500,000).
    pub drift_ppb: i32,
}

impl Clock {
    /// Creates a clock that shows `sync_origin` plus its error at the start of virtual time.
    pub fn new(mono_origin_ns: u64, sync_origin: Timestamp, error: ClockError) -> Self {
        Self {
            mono_origin_ns,
            sync_origin_ns: sync_origin.as_ns().wrapping_add_signed(error.offset_ns),
            stepped_ns: 0,
            drift: (i64::from(error.drift_ppb) << DRIFT_BITS) / 1_000_000_000,
        }
    }

    /// Reads both clocks at `at`.
    #[inline]
    pub fn read(&self, at: Instant) -> Now {
        let elapsed_ns = self.elapsed_ns(at.as_ns());
        Now {
            mono: Mono::from_ns(self.mono_origin_ns + elapsed_ns),
            sync: Timestamp::from_ns(self.sync_origin_ns.wrapping_add(elapsed_ns)),
        }
    }

    /// Returns the earliest instant at which the local clock shows `mono` or more.
    #[inline]
    pub fn instant_of(&self, mono: Mono) -> Instant {
        let target_ns = mono.as_ns().saturating_sub(self.mono_origin_ns);
        // Invert the drift to first order, which is less than a millionth of `target_ns` off, and
        // correct that.
        let mut ns = target_ns;
        if self.drift != 0 {
            ns = ns.saturating_add_signed(-self.drift_ns(target_ns));
            ns = ns.saturating_add(target_ns.saturating_sub(self.elapsed_ns(ns)));
            while ns > 0 && self.elapsed_ns(ns - 1) >= target_ns {
                ns -= 1;
            }
            while self.elapsed_ns(ns) < target_ns {
                ns += 1;
            }
        }
        Instant::from_ps(ns.saturating_mul(NANOSECOND))
    }

    /// Steps the synchronized clock by `ns`.
    pub fn step(&mut self, ns: i64) {
        self.sync_origin_ns = self.sync_origin_ns.wrapping_add_signed(ns);
        self.stepped_ns = self.stepped_ns.wrapping_add(ns);
    }

    /// Synchronizes the clock: undoes all steps and keeps the configured offset.
    pub fn synchronise(&mut self) {
        self.step(self.stepped_ns.wrapping_neg());
    }

    #[inline]
    fn elapsed_ns(&self, ns: u64) -> u64 {
        ns.wrapping_add_signed(self.drift_ns(ns))
    }

    #[inline]
    fn drift_ns(&self, ns: u64) -> i64 {
        // Runs of minutes stay within 64 bits.
        match i64::try_from(ns).ok().and_then(|ns| ns.checked_mul(self.drift)) {
            Some(product) => product >> DRIFT_BITS,
            None => ((i128::from(ns) * i128::from(self.drift)) >> DRIFT_BITS) as i64,
        }
    }
}

/// Returns the value of the synchronized clocks at the start of a run. The value is arbitrary, but
/// for every fourth seed it lies just below a wrap of the 48-bit wire timestamp, so that the wrap
/// happens `wrap_after_ns` after the start.
pub fn clock_origin(seed: u64, wrap_after_ns: u64) -> Timestamp {
    let mut random = Random::named(seed, "clock origin", 0);
    let epoch = random.between(4, 4_000) * WIRE_MODULUS;
    Timestamp::from_ns(match seed % 4 {
        3 => epoch - wrap_after_ns,
        _ => epoch + random.below(WIRE_MODULUS),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn clock(error: ClockError) -> Clock {
        Clock::new(777, Timestamp::from_ns(1 << 50), error)
    }

    #[test]
    fn offset_drift_and_step_affect_the_right_clock() {
        let mut clock = clock(ClockError { offset_ns: -40, drift_ppb: 500_000 });
        assert_eq!(clock.read(Instant::START).sync.as_ns(), (1 << 50) - 40);
        let second = Instant::from_ps(1_000_000_000_000);
        let drifted = clock.read(second);
        assert!((1_000_499_990..=1_000_500_001).contains(&(drifted.mono.as_ns() - 777)));
        clock.step(3_600_000_000_000);
        let stepped = clock.read(second);
        assert_eq!(stepped.mono, drifted.mono);
        assert_eq!(stepped.sync.since_ns(drifted.sync), 3_600_000_000_000);
        clock.synchronise();
        assert_eq!(clock.read(second), drifted);
    }

    proptest! {
        #[test]
        fn a_timer_is_never_early_and_at_most_a_nanosecond_late(drift_ppb in -500_000i32..=500_000, ahead in 0u64..1 << 42) {
            let clock = clock(ClockError { offset_ns: 0, drift_ppb });
            let mono = Mono::from_ns(777 + ahead);
            let instant_of = clock.instant_of(mono);
            prop_assert!(clock.read(instant_of).mono >= mono);
            if instant_of > Instant::START {
                prop_assert!(clock.read(Instant::from_ps(instant_of.as_ps() - NANOSECOND)).mono < mono);
            }
        }
    }
}
