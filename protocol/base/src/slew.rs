//! Clock slewing: protects timestamps from steps of the synchronised clock.

use crate::{Now, Timestamp};

/// Follows `now.sync` monotonically and without jumps.
///
/// A clock that steps an hour forward would stamp messages that cannot be delivered for an hour;
/// one that steps back would stop its own promise, and with it the barrier of every receiver. So
/// the time used for stamping advances with the local clock, and is corrected towards the
/// synchronised clock by at most one part in [`Slew::RATE`] of the local time elapsed. Only latency
/// depends on this, never order (docs/design/ordering.md, "Why does a clock that steps cost
/// nothing?").
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slew {
    last: Option<(Now, Timestamp)>,
}

impl Slew {
    /// Inverse of the maximum slew rate: 1/512 = 1,953 ppm, and 977 ppm when read every 1,023 ns
    /// (corrections are whole nanoseconds). Either is above the 500 ppm of drift that a clock may
    /// show, so that a drifting clock is still tracked.
    pub const RATE: u64 = 512;

    /// Returns a slewed clock that accepts its first reading unchecked.
    pub const fn new() -> Self {
        Self { last: None }
    }

    /// Continues from `time` at `now`, whatever the clock shows. For a machine that learns that its
    /// clock is wrong before it has sent any timestamp.
    pub fn restart(&mut self, now: Now, time: Timestamp) {
        self.last = Some((now, time));
    }

    //= spec/ordering.md#R5
    /// Returns the time to stamp with at `now`: slewed towards `now.sync`, never below an earlier
    /// reading.
    #[inline]
    pub fn read(&mut self, now: Now) -> Timestamp {
        let Some((then, reading)) = self.last else {
            self.last = Some((now, now.sync));
            return now.sync;
        };
        let elapsed_ns = now.mono.since_ns(then.mono);
        let expected = reading.wrapping_add_ns(elapsed_ns);
        if now.sync == expected {
            self.last = Some((now, expected));
            return expected;
        }
        let last_reading = reading;
        let slack_ns = elapsed_ns / Self::RATE;
        if slack_ns == 0 && elapsed_ns != 0 {
            // Too little time has passed for a correction: leave `last`, so that the time adds up.
            return expected;
        }
        let reading = now
            .sync
            .max(expected.saturating_sub_ns(slack_ns))
            .min(expected.wrapping_add_ns(slack_ns))
            .max(reading);
        let ahead_ns_max = elapsed_ns.saturating_add(slack_ns);
        let has_jumped = reading.since_ns(last_reading) > ahead_ns_max;
        debug_assert!(!has_jumped, "the time advances by the slew rate at most");
        self.last = Some((now, reading));
        reading
    }
}

impl Default for Slew {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mono;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const HOUR_NS: u64 = 3_600_000_000_000;

    fn at(mono: u64, sync: u64) -> Now {
        Now { mono: Mono::from_ns(mono), sync: Timestamp::from_ns(sync) }
    }

    //= spec/ordering.md#R5
    #[test]
    fn step_forward_moves_reading_by_slew_only() {
        let mut slew = Slew::new();
        slew.read(at(0, 2 * HOUR_NS));
        let reading = slew.read(at(512_000, 3 * HOUR_NS));
        assert_eq!(reading.as_ns(), 2 * HOUR_NS + 512_000 + 1_000);
    }

    //= spec/ordering.md#R5
    #[test]
    fn step_back_does_not_stop_reading() {
        let mut slew = Slew::new();
        slew.read(at(0, 2 * HOUR_NS));
        let reading = slew.read(at(512_000, HOUR_NS));
        assert_eq!(reading.as_ns(), 2 * HOUR_NS + 512_000 - 1_000);
    }

    #[test]
    fn short_readings_slew_as_far_as_one_long_one() {
        let mut slew = Slew::new();
        slew.read(at(0, 2 * HOUR_NS));
        let mut reading = Timestamp::from_ns(0);
        for step in 1..=10_240u64 {
            reading = slew.read(at(step * 50, 3 * HOUR_NS));
        }
        let gained = reading.as_ns() - 2 * HOUR_NS - 512_000;
        assert!((900..=1_000).contains(&gained), "gained {gained} ns of 1000");
    }

    #[test]
    fn catches_up_one_hour_in_512_hours() {
        let mut slew = Slew::new();
        slew.read(at(0, 2 * HOUR_NS));
        // 511 h later the reading is still behind; at 512 h it meets the clock, and stays with it.
        for (hours, is_met) in [(511, false), (512, true), (513, true)] {
            let now = at(hours * HOUR_NS, (3 + hours) * HOUR_NS);
            assert_eq!(slew.read(now) == now.sync, is_met, "after {hours} h");
        }
    }

    /// Readings of an arbitrary clock: local time elapsed, and the value of `sync`.
    fn any_readings() -> impl Strategy<Value = Vec<(u64, u64)>> {
        let elapsed = prop_oneof![0u64..2_000, 0u64..1_000_000];
        prop::collection::vec((elapsed, 0u64..(1 << 52)), 1..200)
    }

    proptest! {
        #[test]
        fn reading_never_goes_back(readings in any_readings()) {
            let (mut slew, mut mono, mut last) = (Slew::new(), 0, None);
            for (elapsed, sync) in readings {
                mono += elapsed;
                let reading = slew.read(at(mono, sync));
                prop_assert!(last.is_none_or(|last| reading >= last));
                last = Some(reading);
            }
        }

        #[test]
        fn slew_rate_is_bounded(readings in any_readings()) {
            // Between any two readings, not only consecutive ones: short steps must not add up
            // to more.
            let (mut slew, mut mono) = (Slew::new(), 0u64);
            let mut reading: Vec<(u64, u64)> = Vec::new();
            for (elapsed, sync) in readings {
                mono += elapsed;
                reading.push((mono, slew.read(at(mono, sync)).as_ns()));
            }
            for (at, (from_mono, from_reading)) in reading.iter().enumerate() {
                for (to_mono, to_reading) in &reading[at..] {
                    let (elapsed, moved) = (to_mono - from_mono, to_reading - from_reading);
                    let slack = elapsed / Slew::RATE + 2;
                    prop_assert!(moved.abs_diff(elapsed) <= slack, "{moved} in {elapsed} ns");
                }
            }
        }

        #[test]
        fn follows_clock_with_500_ppm_drift(
            steps in prop::collection::vec(1u64..100_000, 1..500), ppm in -500i64..=500,
        ) {
            let (mut slew, mut mono) = (Slew::new(), 0u64);
            for step in steps {
                mono += step;
                let drift = mono as i64 * ppm / 1_000_000;
                let sync = HOUR_NS + mono.wrapping_add_signed(drift);
                let reading = slew.read(at(mono, sync)).as_ns();
                prop_assert!(reading.abs_diff(sync) <= 2, "{} ns off", reading.abs_diff(sync));
            }
        }
    }
}
