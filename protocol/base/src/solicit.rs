//! Solicits: beacons that name a timestamp and ask for a promise above it.

use crate::{Backoff, Mono, ResponseTime, Timestamp};

/// At least this many solicits leave before the link times out: the longest interval between two of
/// them, and the longest time that a promise is given before it is solicited, are this fraction of
/// the timeout.
const SOLICITS_PER_TIMEOUT: u64 = 10;
/// The same bound for a link without a timeout, in beacon intervals.
const WAIT_INTERVALS_MAX: u64 = 32;
//= spec/ordering.md#R46
/// A solicit is answered at most four times in an interval, however often it is repeated.
const ANSWERS_PER_INTERVAL: u64 = 4;
/// A request further than this ahead of the clock, in ns, is answered once and then forgotten: no
/// pair of usable clocks is that far apart (spec/ordering.md R5).
const REQUEST_AHEAD_NS_MAX: u64 = 1_000_000_000;

//= spec/ordering.md#R46
/// Returns whether a node whose clock reads `clock` remembers a request for promises above
/// `wanted`.
#[inline]
#[must_use]
pub fn is_plausible_request(clock: Timestamp, wanted: Timestamp) -> bool {
    wanted <= clock.wrapping_add_ns(REQUEST_AHEAD_NS_MAX)
}

/// Schedules the solicits on one link, and remembers since when none was answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SolicitTimer {
    interval_ns: u64,
    wait_ns_max: u64,
    backoff: Backoff,
    response: ResponseTime,
    unanswered_since: Option<Mono>,
}

impl SolicitTimer {
    /// Returns a timer that is not running, of a link with this beacon interval, this heartbeat
    /// interval (0: none) and this timeout (0: none), in ns.
    #[must_use]
    pub fn new(interval_ns: u64, heartbeat_ns: u64, timeout_ns: u64) -> Self {
        let interval_ns = interval_ns.max(1);
        let wait_ns_max = match timeout_ns {
            0 => interval_ns.saturating_mul(WAIT_INTERVALS_MAX),
            timeout_ns => (timeout_ns / SOLICITS_PER_TIMEOUT).max(interval_ns),
        };
        let wait_ns_max = match heartbeat_ns {
            0 => wait_ns_max,
            heartbeat_ns => wait_ns_max.min(heartbeat_ns),
        };
        debug_assert!(interval_ns <= wait_ns_max, "a heartbeat is no shorter than a beacon");
        Self {
            interval_ns,
            wait_ns_max,
            backoff: Backoff::new(interval_ns, wait_ns_max),
            response: ResponseTime::default(),
            unanswered_since: None,
        }
    }

    //= spec/ordering.md#R50
    /// Returns how long a promise is given before it is solicited, and between the first two
    /// solicits, in ns: as long as it usually takes, as measured.
    #[inline]
    #[must_use]
    pub fn wait_ns(&self) -> u64 {
        self.response.timeout_ns().clamp(self.interval_ns, self.wait_ns_max)
    }

    /// Handles a promise that came `elapsed_ns` after it was asked for; if that is longer than the
    /// wait, it was solicited meanwhile.
    pub fn on_response(&mut self, elapsed_ns: u64) {
        let wait_ns = self.wait_ns();
        if elapsed_ns > wait_ns {
            self.response.on_repeated_sample(elapsed_ns, wait_ns);
        } else {
            self.response.on_sample(elapsed_ns);
        }
    }

    /// Schedules a solicit for `at`, and its repetitions from the shortest interval on.
    pub fn start(&mut self, at: Mono) {
        self.backoff.set_initial(self.wait_ns());
        self.backoff.on_change(at);
    }

    /// Schedules the next solicit for `at`, and leaves the intervals of its repetitions.
    pub fn reschedule(&mut self, at: Mono) {
        self.backoff.reschedule(Some(at));
    }

    /// Schedules no further solicit.
    pub fn stop(&mut self) {
        self.backoff.reschedule(None);
    }

    /// Handles the end of a wait: the next solicit leaves after the usual wait at the latest, and
    /// not before the last one of this wait would have been repeated, if that is earlier.
    #[inline]
    pub fn on_satisfied(&mut self, now: Mono) {
        let wait_ns = self.wait_ns();
        self.backoff.set_initial(wait_ns);
        self.backoff.reset_interval();
        let latest = now.after_ns(wait_ns);
        if self.backoff.due().is_some_and(|due| due > latest) {
            self.backoff.reschedule(Some(latest));
        }
    }

    /// Returns whether a solicit is due, and schedules its repetition.
    pub fn take(&mut self, now: Mono) -> bool {
        let is_due = self.backoff.take(now);
        if is_due {
            self.unanswered_since.get_or_insert(now);
        }
        is_due
    }

    /// Returns when the next solicit is due.
    #[inline]
    #[must_use]
    pub fn due(&self) -> Option<Mono> {
        self.backoff.due()
    }

    /// Handles a frame with promises on the link, which answers every solicit.
    #[inline]
    pub fn on_answered(&mut self) {
        self.unanswered_since = None;
    }

    /// Returns when the first solicit left that nothing has answered.
    #[inline]
    #[must_use]
    pub fn unanswered_since(&self) -> Option<Mono> {
        self.unanswered_since
    }
}

/// Limits the answers to the solicits of one neighbour.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AnswerBudget {
    gap_ns: u64,
    answered_at: Option<Mono>,
}

impl AnswerBudget {
    /// Returns the budget of a link with this beacon interval, in ns.
    #[must_use]
    pub fn new(interval_ns: u64) -> Self {
        Self { gap_ns: interval_ns / ANSWERS_PER_INTERVAL, answered_at: None }
    }

    /// Returns the shortest time between two answers, in ns.
    #[must_use]
    pub fn gap_ns(&self) -> u64 {
        self.gap_ns
    }

    /// Returns when the next answer may leave; `None`: at once.
    #[must_use]
    pub fn next(&self) -> Option<Mono> {
        Some(self.answered_at?.after_ns(self.gap_ns))
    }

    /// Returns whether an answer may leave now.
    #[must_use]
    pub fn admits(&self, now: Mono) -> bool {
        self.next().is_none_or(|at| at <= now)
    }

    /// Handles an answer that leaves now.
    pub fn on_answered(&mut self, now: Mono) {
        self.answered_at = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn at(ns: u64) -> Mono {
        Mono::from_ns(ns)
    }

    /// Returns when solicits leave until `end`.
    fn sent(timer: &mut SolicitTimer, end: u64) -> Vec<u64> {
        let mut sent = Vec::new();
        while let Some(due) = timer.due().filter(|due| *due <= at(end)) {
            assert!(timer.take(due));
            sent.push(due.as_ns());
        }
        sent
    }

    //= spec/ordering.md#R41
    #[test]
    fn repeats_with_doubling_interval_up_to_32() {
        let mut timer = SolicitTimer::new(10, 0, 0);
        assert!(!timer.take(at(5)), "not started");
        timer.start(at(100));
        assert_eq!(sent(&mut timer, 1_400), [100, 110, 130, 170, 250, 410, 730, 1_050, 1_370]);
        timer.on_satisfied(at(1_400));
        assert_eq!(sent(&mut timer, 1_470), [1_410, 1_420, 1_440], "soon, as its wait is over");
        timer.stop();
        assert_eq!(timer.due(), None);
        timer.reschedule(at(2_000));
        assert!(timer.take(at(2_000)));
        assert_eq!(timer.due(), Some(at(2_080)));
    }

    //= spec/ordering.md#R50
    #[test]
    fn waits_as_long_as_promises_take() {
        let mut timer = SolicitTimer::new(10, 0, 0);
        assert_eq!(timer.wait_ns(), 10);
        (0..10).for_each(|_| timer.on_response(3));
        assert_eq!(timer.wait_ns(), 10, "at least one interval");
        // Promises take six intervals, and are solicited too early at first.
        (0..30).for_each(|_| timer.on_response(60));
        assert!((55..=80).contains(&timer.wait_ns()), "{timer:?}");
        timer.start(at(1_000));
        assert_eq!(sent(&mut timer, 1_000), [1_000]);
        assert_eq!(timer.due(), Some(at(1_000 + timer.wait_ns())), "repeated after the same time");
        (0..100).for_each(|_| timer.on_response(1_000_000));
        assert_eq!(timer.wait_ns(), 320, "at most 32 intervals");
        let mut timer = SolicitTimer::new(10, 0, 1_000);
        (0..100).for_each(|_| timer.on_response(1_000_000));
        assert_eq!(timer.wait_ns(), 100, "at most a tenth of the link timeout");
        let mut timer = SolicitTimer::new(10, 70, 1_000);
        (0..100).for_each(|_| timer.on_response(1_000_000));
        assert_eq!(timer.wait_ns(), 70, "at most a heartbeat");
    }

    //= spec/ordering.md#R44
    #[test]
    fn ten_solicits_leave_before_the_timeout() {
        let mut timer = SolicitTimer::new(10, 0, 500);
        timer.start(at(0));
        assert!(sent(&mut timer, 500).len() >= 10);
        assert_eq!(timer.unanswered_since(), Some(at(0)));
        timer.on_answered();
        assert_eq!(timer.unanswered_since(), None);
        // A timeout shorter than ten intervals does not shorten these.
        let mut timer = SolicitTimer::new(10, 0, 50);
        timer.start(at(0));
        assert_eq!(sent(&mut timer, 30), [0, 10, 20, 30]);
    }

    //= spec/ordering.md#R46
    #[test]
    fn four_answers_leave_in_an_interval() {
        let mut budget = AnswerBudget::new(1_000);
        let mut answers = 0;
        for ns in 0..1_000 {
            if budget.admits(at(ns)) {
                budget.on_answered(at(ns));
                answers += 1;
            }
        }
        assert_eq!((answers, budget.next()), (4, Some(at(1_000))));
    }

    //= spec/ordering.md#R46
    #[test]
    fn request_more_than_a_second_ahead_is_implausible() {
        let clock = Timestamp::from_ns(1 << 50);
        let asks = |ahead_ns| is_plausible_request(clock, clock.wrapping_add_ns(ahead_ns));
        assert_eq!([asks(0), asks(1_000_000_000), asks(1_000_000_001)], [true, true, false]);
    }
}
