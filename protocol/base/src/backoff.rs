//! Repetition intervals of messages that may be lost unacknowledged.

use crate::{Address, Mono};

/// With jitter, the initial interval is at least the maximum interval divided by this: a maximum of
/// 10 ms, which suits a few hundred nodes, gives 10 us, a few beacon intervals. A larger fabric
/// sets a longer maximum to limit its control traffic, and the initial interval grows with the
/// maximum.
const INITIAL_DIVISOR: u64 = 1_000;

/// For how many maximum intervals a schedule stays awake. By then a node that missed the update in
/// a short fault has received it.
const AWAKE_INTERVALS: u64 = 10;

/// Schedules the repetition of an update: at once when it changes, again after 1, 2, 4, … initial
/// intervals, and then at the maximum interval without end, so that the update also reaches nodes
/// that lost it or joined later (docs/design/failure.md, "Where is the controller?"). With
/// [`Backoff::resting`] the repetitions are rarer once the schedule was not woken for a while.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Backoff {
    initial_ns: u64,
    max_ns: u64,
    /// Interval at rest. 0: the schedule never rests.
    rest_ns: u64,
    interval_ns: u64,
    due: Option<Mono>,
    /// The schedule rests from here on.
    awake_until: Mono,
    /// State of the hash that draws the jitter; `None` without jitter.
    hash: Option<u64>,
}

impl Backoff {
    /// Returns a schedule that is idle until the first change. `initial_ns` is at least 1.
    pub const fn new(initial_ns: u64, max_ns: u64) -> Self {
        let awake_until = Mono::from_ns(0);
        Self { initial_ns, max_ns, rest_ns: 0, interval_ns: 0, due: None, awake_until, hash: None }
    }

    /// As [`Backoff::new`], for one of many nodes that may start at the same moment: shortens each
    /// interval by up to a half, by a hash of `address` and the number of repetitions. The nodes do
    /// not stay in step, and the last one in a queue is not always the same.
    pub fn with_jitter(initial_ns: u64, max_ns: u64, address: Address) -> Self {
        let initial_ns = initial_ns.max(max_ns / INITIAL_DIVISOR);
        Self { hash: Some(u64::from(address.to_bits())), ..Self::new(initial_ns, max_ns) }
    }

    /// Makes the interval `rest_ns`, if that is longer than the maximum, once ten maximum intervals
    /// have passed since the last change or [`Backoff::wake`].
    #[must_use]
    pub const fn resting(mut self, rest_ns: u64) -> Self {
        self.rest_ns = if rest_ns > self.max_ns { rest_ns } else { 0 };
        self
    }

    /// Ends the rest: something waits for the update, or for its answer.
    pub fn wake(&mut self, now: Mono) {
        if self.rest_ns == 0 {
            return;
        }
        self.awake_until = now.after_ns(AWAKE_INTERVALS.saturating_mul(self.max_ns));
        if self.due.is_some_and(|due| due > now.after_ns(self.interval_ns)) {
            self.due = Some(now.after_ns(self.interval_ns - self.jitter_ns(self.interval_ns)));
        }
    }

    /// Sets the initial interval of the next restart, at least 1 ns.
    pub fn set_initial(&mut self, initial_ns: u64) {
        self.initial_ns = initial_ns;
    }

    /// Restarts the schedule with the initial interval, due now, because the update has changed.
    pub fn on_change(&mut self, now: Mono) {
        self.reset_interval();
        self.due = Some(now);
        self.wake(now);
    }

    /// Makes the next repetition due at `at`, and leaves the intervals after it as they are.
    pub fn reschedule(&mut self, at: Option<Mono>) {
        self.due = at;
    }

    /// Makes the interval after the next repetition the initial one.
    pub fn reset_interval(&mut self) {
        self.interval_ns = self.initial_ns;
    }

    /// Returns when the update is due next.
    pub fn due(&self) -> Option<Mono> {
        self.due
    }

    /// Returns whether the update is due, and if so schedules the next repetition.
    pub fn take(&mut self, now: Mono) -> bool {
        if self.due.is_none_or(|due| now < due) {
            return false;
        }
        let is_at_rest = self.rest_ns > 0 && self.awake_until <= now;
        let interval_ns = if is_at_rest { self.rest_ns } else { self.interval_ns };
        let interval_ns_max = self.max_ns.max(self.initial_ns).max(self.rest_ns);
        debug_assert!(interval_ns <= interval_ns_max, "no interval exceeds the maximum");
        self.due = Some(now.after_ns(interval_ns - self.jitter_ns(interval_ns)));
        self.interval_ns = self.interval_ns.saturating_mul(2).min(self.max_ns.max(self.initial_ns));
        true
    }

    fn jitter_ns(&mut self, interval_ns: u64) -> u64 {
        let Some(hash) = &mut self.hash else { return 0 };
        *hash = mix(*hash);
        // The upper half of the product is uniform in `0..=interval_ns / 2`.
        let jitter_ns = ((u128::from(interval_ns / 2 + 1) * u128::from(*hash)) >> 64) as u64;
        debug_assert!(jitter_ns <= interval_ns / 2, "at least half of the interval remains");
        jitter_ns
    }
}

/// SplitMix64 (G. Steele, D. Lea and C. Flood, "Fast splittable pseudorandom number generators",
/// OOPSLA 2014).
fn mix(seed: u64) -> u64 {
    let seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_with_doubling_interval_up_to_maximum() {
        let mut backoff = Backoff::new(10, 35);
        assert!(!backoff.take(Mono::from_ns(1_000)), "nothing to send yet");
        backoff.on_change(Mono::from_ns(100));
        let mut sent = alloc::vec::Vec::new();
        for ns in 100..300 {
            if backoff.take(Mono::from_ns(ns)) {
                sent.push(ns);
            }
        }
        assert_eq!(sent, [100, 110, 130, 165, 200, 235, 270]);
        backoff.on_change(Mono::from_ns(301));
        assert_eq!(backoff.due(), Some(Mono::from_ns(301)));
    }

    #[test]
    fn rests_until_woken_or_changed() {
        let mut backoff = Backoff::new(10, 20).resting(1_000);
        backoff.on_change(Mono::from_ns(0));
        let sent = |backoff: &mut Backoff, ns: core::ops::Range<u64>| {
            ns.filter(|ns| backoff.take(Mono::from_ns(*ns))).collect::<alloc::vec::Vec<u64>>()
        };
        let awake = sent(&mut backoff, 0..2_500);
        assert_eq!(awake[..3], [0, 10, 30]);
        assert_eq!(
            awake[awake.len() - 4..],
            [190, 210, 1_210, 2_210],
            "awake for ten intervals of 20"
        );
        backoff.wake(Mono::from_ns(2_500));
        assert_eq!(sent(&mut backoff, 2_500..2_530), [2_520], "sooner than at 3,210");
        backoff.on_change(Mono::from_ns(2_530));
        assert_eq!(sent(&mut backoff, 2_530..2_545), [2_530, 2_540]);

        let mut never = Backoff::new(10, 20).resting(20);
        never.on_change(Mono::from_ns(0));
        assert_eq!(sent(&mut never, 0..1_000).last(), Some(&990), "no longer than the maximum");
    }

    #[test]
    fn rescheduling_keeps_the_interval() {
        let mut backoff = Backoff::new(10, 100);
        backoff.on_change(Mono::from_ns(0));
        assert!(backoff.take(Mono::from_ns(0)) && backoff.take(Mono::from_ns(10)));
        backoff.reschedule(Some(Mono::from_ns(12)));
        assert!(backoff.take(Mono::from_ns(12)));
        assert_eq!(backoff.due(), Some(Mono::from_ns(52)));
        backoff.reset_interval();
        assert!(backoff.take(Mono::from_ns(52)));
        assert_eq!(backoff.due(), Some(Mono::from_ns(62)));
        backoff.reschedule(None);
        assert!(!backoff.take(Mono::from_ns(1_000)));
    }

    #[test]
    fn jitter_spreads_simultaneous_starts() {
        let address = |id| Address::Process(crate::ProcessId(id));
        let begin = |id| {
            let mut backoff = Backoff::with_jitter(10_000, 1_000_000, address(id));
            backoff.on_change(Mono::from_ns(0));
            assert!(backoff.take(Mono::from_ns(0)), "a change is sent at once");
            backoff
        };
        let mut backoffs: alloc::vec::Vec<Backoff> = (0..1_000).map(begin).collect();
        assert_eq!(backoffs[7], begin(7), "deterministic");
        for interval_ns in [10_000, 20_000, 40_000] {
            let mut pauses = alloc::vec::Vec::new();
            for backoff in &mut backoffs {
                let since = backoff.due().expect("goes on for ever");
                assert!(backoff.take(since));
                let due = backoff.due().expect("goes on for ever");
                // The interval that starts now is twice the one that has ended.
                pauses.push(due.since_ns(since) - interval_ns);
            }
            pauses.sort_unstable();
            for (part, pause) in pauses.iter().enumerate() {
                let even = interval_ns * part as u64 / 1_000;
                assert!(pause.abs_diff(even) < interval_ns / 16, "{pause}, not about {even}");
            }
            assert!(pauses[999] <= interval_ns, "jitter never lengthens an interval");
        }
    }

    #[test]
    fn initial_interval_is_bounded_by_maximum() {
        let first = |max_ns| {
            let mut backoff =
                Backoff::with_jitter(6_000, max_ns, Address::Process(crate::ProcessId(1)));
            backoff.on_change(Mono::from_ns(0));
            backoff.take(Mono::from_ns(0));
            backoff.due().expect("goes on for ever").as_ns()
        };
        assert!((3_000..=6_000).contains(&first(1_000_000)));
        assert!((500_000..=1_000_000).contains(&first(1_000_000_000)));
    }
}
