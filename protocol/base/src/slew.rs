//! A guard against clocks that step.

use crate::{Now, Timestamp};

/// Follows `now.sync`, but never backwards and never by leaps.
///
/// A clock that steps forward an hour would stamp messages that nobody could deliver for an hour;
/// one that steps back would stop its promise, and with it everybody's, for an hour. So the time
/// that a machine stamps with runs at the rate of the local clock and moves towards the
/// synchronised clock by at most one part in [`Slew::RATE`] of the local time elapsed, plus a
/// free allowance for the corrections that a healthy synchronisation makes all the time.
/// Order never depends on this, only latency does (design: ordering.md section 2).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slew {
    last: Option<(Now, Timestamp)>,
}

impl Slew {
    /// Slewing moves at most one nanosecond in this many. 1/512 = 1,953 ppm: above the 500 ppm of
    /// drift that a clock may show (testing.md row 18), so a drifting clock is still tracked.
    pub const RATE: u64 = 512;

    /// A guard that takes its first reading as true.
    pub const fn new() -> Self {
        Self { last: None }
    }

    /// The time to stamp with at `now`: strictly tied to the elapsed local time, never below an
    /// earlier answer.
    #[inline]
    pub fn read(&mut self, now: Now) -> Timestamp {
        let Some((then, told)) = self.last else {
            self.last = Some((now, now.sync));
            return now.sync;
        };
        let elapsed_ns = now.mono.since_ns(then.mono);
        let expected = told.wrapping_add_ns(elapsed_ns);
        if now.sync == expected {
            self.last = Some((now, expected));
            return expected;
        }
        let slack_ns = elapsed_ns / Self::RATE;
        if slack_ns == 0 && elapsed_ns != 0 {
            // Too little time has passed to correct anything: answer, but let the time add up.
            return expected;
        }
        let told = now
            .sync
            .max(expected.saturating_sub_ns(slack_ns))
            .min(expected.wrapping_add_ns(slack_ns))
            .max(told);
        self.last = Some((now, told));
        told
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
    use proptest::prelude::*;

    const HOUR_NS: u64 = 3_600_000_000_000;

    fn at(mono: u64, sync: u64) -> Now {
        Now { mono: Mono::from_ns(mono), sync: Timestamp::from_ns(sync) }
    }

    #[test]
    fn an_hour_forward_moves_the_answer_by_the_slew_only() {
        let mut slew = Slew::new();
        slew.read(at(0, 2 * HOUR_NS));
        let told = slew.read(at(512_000, 3 * HOUR_NS));
        assert_eq!(told.as_ns(), 2 * HOUR_NS + 512_000 + 1_000);
    }

    #[test]
    fn an_hour_back_does_not_stop_the_answer() {
        let mut slew = Slew::new();
        slew.read(at(0, 2 * HOUR_NS));
        let told = slew.read(at(512_000, HOUR_NS));
        assert_eq!(told.as_ns(), 2 * HOUR_NS + 512_000 - 1_000);
    }

    #[test]
    fn many_short_readings_slew_as_far_as_one_long_one() {
        let mut slew = Slew::new();
        slew.read(at(0, 2 * HOUR_NS));
        let mut told = Timestamp::from_ns(0);
        for step in 1..=10_240u64 {
            told = slew.read(at(step * 50, 3 * HOUR_NS));
        }
        let gained = told.as_ns() - 2 * HOUR_NS - 512_000;
        assert!((900..=1_000).contains(&gained), "gained {gained} ns of 1000");
    }

    proptest! {
        #[test]
        fn never_back_whatever_the_clock_does(steps in prop::collection::vec((0u64..1_000_000, 0u64..(1 << 52)), 1..200)) {
            let (mut slew, mut mono, mut last) = (Slew::new(), 0, None);
            for (elapsed, sync) in steps {
                mono += elapsed;
                let told = slew.read(at(mono, sync));
                prop_assert!(last.is_none_or(|last| told >= last));
                last = Some(told);
            }
        }
    }
}
