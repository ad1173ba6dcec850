//! Round-trip time estimation and retransmission timeouts (RFC 6298).

use core::hash::{Hash, Hasher};

use onepipe_base::{Mono, ResponseTime};

/// Round-trip time estimator of a link (RFC 6298). A timeout that follows the measured times keeps
/// retransmissions from loading a peer that is merely slow.
///
/// The estimate only affects when packets are sent, never what they say. A model checker without
/// time compares machines by state, so all estimators with the same limits are equal.
#[derive(Clone, Copy, Debug)]
pub struct RttEstimator {
    rtt: ResponseTime,
    rto_min_ns: u64,
    rto_max_ns: u64,
    /// Exchange being measured: its number, and when it started.
    timed: Option<(u64, Mono)>,
}

impl RttEstimator {
    /// Creates an estimator without samples, whose timeouts in ns are from `rto_min_ns` to
    /// `rto_max_ns`.
    #[must_use]
    pub fn new(rto_min_ns: u64, rto_max_ns: u64) -> Self {
        debug_assert!(rto_min_ns <= rto_max_ns, "the range of timeouts is not empty");
        Self { rtt: ResponseTime::default(), rto_min_ns, rto_max_ns, timed: None }
    }

    /// Adds a sample, in ns.
    pub fn on_sample(&mut self, rtt_ns: u64) {
        self.rtt.on_sample(rtt_ns);
    }

    /// Updates the measurement, given how many exchanges have started and how many of them, in
    /// order, have completed. Measures from the start of the latest exchange to its completion.
    pub fn track(&mut self, now: Mono, started: u64, completed: u64) {
        match self.timed {
            Some((last, since)) if completed >= last => {
                self.timed = None;
                self.on_sample(now.since_ns(since));
            }
            None if started > completed => self.timed = Some((started, now)),
            _ => {}
        }
    }

    /// Discards the current measurement, because a retransmission would make it ambiguous (Karn's
    /// algorithm).
    pub fn discard_sample(&mut self) {
        self.timed = None;
    }

    //= spec/amcast.md#R27
    //= spec/arbiter.md#R23
    /// Returns the timeout in ns after `doublings` expiries without progress.
    fn timeout_ns(&self, doublings: u32) -> u64 {
        debug_assert!(doublings <= RetransmitTimer::DOUBLINGS_MAX, "the timer is bounded");
        let first_ns = self.rtt.timeout_ns().max(self.rto_min_ns);
        first_ns.saturating_mul(1 << doublings).min(self.rto_max_ns)
    }

    /// Returns the initial retransmission timeout in ns.
    #[must_use]
    pub fn initial_ns(&self) -> u64 {
        self.timeout_ns(0)
    }
}

impl PartialEq for RttEstimator {
    fn eq(&self, other: &Self) -> bool {
        (self.rto_min_ns, self.rto_max_ns) == (other.rto_min_ns, other.rto_max_ns)
    }
}

impl Eq for RttEstimator {}

impl Hash for RttEstimator {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.rto_min_ns, self.rto_max_ns).hash(state);
    }
}

/// Retransmission timer: the timeout doubles on every expiry until there is progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RetransmitTimer {
    doublings: u32,
}

impl RetransmitTimer {
    /// Maximum number of doublings.
    const DOUBLINGS_MAX: u32 = 6;
    /// Longest timeout, in multiples of the shortest: as long as the shortest one can become.
    pub const BACKOFF_MAX: u64 = 1 << Self::DOUBLINGS_MAX;

    /// Resets the timeout after progress.
    pub fn reset(&mut self) {
        self.doublings = 0;
    }

    /// Doubles the timeout, as nothing was answered.
    pub fn back_off(&mut self) {
        self.doublings = (self.doublings + 1).min(Self::DOUBLINGS_MAX);
    }

    /// Returns the timeout in ns.
    #[must_use]
    pub fn timeout_ns(&self, rtt: &RttEstimator) -> u64 {
        rtt.timeout_ns(self.doublings)
    }

    //= spec/amcast.md#R27
    /// Returns the next timeout in ns and doubles the one after it.
    pub fn next_timeout_ns(&mut self, rtt: &RttEstimator) -> u64 {
        let timeout_ns = self.timeout_ns(rtt);
        debug_assert!(timeout_ns > 0, "a timer lets time pass");
        self.back_off();
        timeout_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= spec/amcast.md#R27
    #[test]
    fn timeout_follows_slow_replies_up_to_maximum() {
        let mut rtt = RttEstimator::new(50, 64 * 50);
        assert_eq!(rtt.initial_ns(), 50);
        (0..64).for_each(|_| rtt.on_sample(400));
        assert!((400..500).contains(&rtt.initial_ns()), "{rtt:?}");
        (0..64).for_each(|_| rtt.on_sample(1 << 40));
        assert_eq!(rtt.initial_ns(), 64 * 50);
        let mut timer = RetransmitTimer::default();
        (0..9).for_each(|_| assert_eq!(timer.next_timeout_ns(&rtt), 64 * 50));
    }

    //= spec/amcast.md#R27
    #[test]
    fn timeout_doubles_until_progress() {
        let (rtt, mut timer) = (RttEstimator::new(50, 64 * 50), RetransmitTimer::default());
        let timeouts = [50, 100, 200].map(|ns| timer.next_timeout_ns(&rtt) == ns);
        assert_eq!(timeouts, [true; 3]);
        timer.reset();
        assert_eq!(timer.next_timeout_ns(&rtt), 50);
    }

    #[test]
    fn measures_one_exchange_at_a_time() {
        let mut rtt = RttEstimator::new(1, 64);
        let mut at = |ns, started, completed| rtt.track(Mono::from_ns(ns), started, completed);
        at(100, 5, 5);
        at(200, 7, 5);
        at(300, 9, 6);
        at(900, 12, 7);
        assert_eq!(rtt.rtt.mean_ns(), 700, "until the seventh was completed");
        let mut at = |ns, started, completed| rtt.track(Mono::from_ns(ns), started, completed);
        at(1_000, 12, 7);
        rtt.discard_sample();
        rtt.track(Mono::from_ns(9_000_000), 12, 12);
        assert_eq!(rtt.rtt.mean_ns(), 700, "a retransmission discards the sample");
    }
}
