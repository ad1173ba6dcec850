//! Timestamps of one process: strictly increasing and above every delivered timestamp.

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{Now, Slew, Timestamp};

//= spec/ordering.md#R14
/// Age of the promise that stands for "no promise", in ns (19.5 h): too old to raise any barrier,
/// and still distinguishable from the future in 48 bits.
pub(crate) const NO_PROMISE_AGE_NS: u64 = 1 << 46;
/// A clock that differs from the fabric's time by more than this, in ns, is not synchronised at
/// all, and the fabric's time replaces it. 1 s is a hundred times the worst expected skew.
const SKEW_NS_MAX: u64 = 1_000_000_000;

/// Assigns timestamps and promises; no timestamp is assigned below an earlier promise.
///
/// A joining process assigns no timestamp and promises nothing before its first barrier. If that
/// barrier shows that its clock is off by more than any skew, because it was stepped before this
/// incarnation started, the source continues from the barrier.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TimestampSource {
    slew: Slew,
    /// Last reading of the slewed clock, and when it was taken.
    clock: Option<(Now, Timestamp)>,
    /// Lowest timestamp that may still be assigned. `None` before the first barrier.
    floor: Option<Timestamp>,
}

impl TimestampSource {
    pub fn new() -> Self {
        Self { slew: Slew::new(), clock: None, floor: None }
    }

    /// Reads the clock and raises the promise to it.
    #[inline]
    pub fn read(&mut self, now: Now) -> Timestamp {
        let clock = self.slew.read(now);
        self.clock = Some((now, clock));
        self.floor = self.floor.map(|floor| floor.max(clock));
        clock
    }

    /// Returns whether timestamps can be assigned.
    #[inline]
    pub fn is_started(&self) -> bool {
        self.floor.is_some()
    }

    /// Returns the promise: no timestamp below it will be assigned. `None` before the first
    /// reading.
    #[inline]
    pub fn promise(&self) -> Option<Timestamp> {
        self.floor.or_else(|| Some(self.clock?.1.saturating_sub_ns(NO_PROMISE_AGE_NS)))
    }

    //= spec/ordering.md#R2
    /// Assigns `max(last + 1, now)`, where `now` is the last reading.
    #[inline]
    pub fn next(&mut self) -> Timestamp {
        let floor = self.floor.as_mut();
        let floor = floor.expect("no timestamp is assigned before the first barrier");
        let ts = *floor;
        *floor = ts.wrapping_add_ns(1);
        ts
    }

    //= spec/ordering.md#R4
    /// Raises every later timestamp to at least `barrier`. This keeps causality, and lets a joining
    /// process or a slow clock catch up.
    #[inline]
    pub fn raise_to(&mut self, barrier: Timestamp) {
        match self.floor {
            Some(_) if makes(Mistake::NoClockClamp) => {}
            Some(floor) => self.floor = Some(floor.max(barrier)),
            None => self.start(barrier),
        }
    }

    /// Checks that no later timestamp lies below the clock.
    pub fn check_invariants(&self) {
        let Some(floor) = self.floor else { return };
        assert!(self.clock.is_some_and(|(_, clock)| clock <= floor), "the clock was read before");
    }

    //= spec/ordering.md#R5
    #[cold]
    fn start(&mut self, barrier: Timestamp) {
        let Some((now, clock)) = self.clock else { return };
        let skew_ns = clock.as_ns().abs_diff(barrier.as_ns());
        // A "no promise" barrier: no process has a time yet, so this process keeps its clock.
        let is_unknown = barrier.wrapping_add_ns(NO_PROMISE_AGE_NS / 2) < clock;
        let start = if skew_ns > SKEW_NS_MAX && !is_unknown {
            self.slew.restart(now, barrier);
            barrier
        } else {
            clock
        };
        self.clock = Some((now, start));
        self.floor = Some(start.max(barrier));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onepipe_base::Mono;

    fn at(mono: u64, sync: u64) -> Now {
        Now { mono: Mono::from_ns(mono), sync: Timestamp::from_ns(sync) }
    }

    //= spec/ordering.md#R2
    #[test]
    fn timestamps_increase_if_the_clock_stops_or_steps_back() {
        let mut source = TimestampSource::new();
        source.read(at(0, 1_000));
        source.raise_to(Timestamp::from_ns(900));
        assert_eq!(source.next().as_ns(), 1_000);
        assert_eq!(source.next().as_ns(), 1_001);
        source.read(at(1, 10));
        assert_eq!(source.next().as_ns(), 1_002);
    }

    //= spec/ordering.md#R4
    #[test]
    fn next_timestamp_exceeds_every_delivered_one() {
        let mut source = TimestampSource::new();
        source.read(at(0, 1_000));
        source.raise_to(Timestamp::from_ns(9_001));
        assert_eq!(source.promise(), Some(Timestamp::from_ns(9_001)));
        assert_eq!(source.next().as_ns(), 9_001);
    }

    //= spec/ordering.md#R5
    //= spec/ordering.md#R14
    #[test]
    fn joiner_promises_nothing_before_its_first_barrier() {
        let day = 86_400_000_000_000;
        let mut source = TimestampSource::new();
        assert_eq!(source.promise(), None);
        source.read(at(0, 2 * day));
        assert!(!source.is_started());
        assert_eq!(source.promise(), Some(Timestamp::from_ns(2 * day - NO_PROMISE_AGE_NS)));
        source.raise_to(Timestamp::from_ns(2 * day - NO_PROMISE_AGE_NS));
        assert_eq!(
            source.promise(),
            Some(Timestamp::from_ns(2 * day)),
            "no process has a time yet"
        );
    }

    //= spec/ordering.md#R5
    #[test]
    fn joiner_with_a_wrong_clock_adopts_fabric_time() {
        let hour = 3_600_000_000_000;
        for wrong in [hour, 3 * hour] {
            let mut source = TimestampSource::new();
            source.read(at(0, wrong));
            source.raise_to(Timestamp::from_ns(2 * hour));
            assert_eq!(source.next().as_ns(), 2 * hour);
            let later = source.read(at(512_000, wrong + 512_000)).as_ns();
            assert!(later.abs_diff(2 * hour + 512_000) <= 1_000, "{later}");
        }
    }
}
