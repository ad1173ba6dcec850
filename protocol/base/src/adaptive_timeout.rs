//! A timeout that knows how long live peers take to respond.

use crate::Mono;

/// A peer is given this many times the longest recent response.
const RESPONSES_PER_TIMEOUT: u64 = 4;
//= spec/ordering.md#R55
/// But at most this many times the configured timeout.
const STRETCH_MAX: u64 = 10;
/// "Recent" is the last one to two periods of this many configured timeouts.
const TIMEOUTS_PER_PERIOD: u64 = 10;

//= spec/ordering.md#R55
/// The timeout of the links of one node: the configured one, or longer while the peers that did
/// respond took long, as on a machine with fewer cores than processes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AdaptiveTimeout {
    configured_ns: u64,
    period_began: Mono,
    /// The longest responses of this period and of the one before, in ns.
    longest_ns: [u64; 2],
}

impl AdaptiveTimeout {
    /// Returns the timeout of a node that has seen no response yet. 0: there is no timeout.
    #[must_use]
    pub const fn new(configured_ns: u64) -> Self {
        Self { configured_ns, period_began: Mono::from_ns(0), longest_ns: [0; 2] }
    }

    /// Handles the response to a request that was sent `elapsed_ns` before. One that took longer
    /// than the longest timeout shows that the peer was stopped or restarted, not that it is slow.
    pub fn on_response(&mut self, now: Mono, elapsed_ns: u64) {
        if elapsed_ns > self.configured_ns.saturating_mul(STRETCH_MAX) {
            return;
        }
        let period_ns = self.period_ns();
        let age_ns = now.since_ns(self.period_began);
        if age_ns >= period_ns {
            self.longest_ns = [0, if age_ns < 2 * period_ns { self.longest_ns[0] } else { 0 }];
            self.period_began = now;
        }
        self.longest_ns[0] = self.longest_ns[0].max(elapsed_ns);
        let longest_ns_max = self.configured_ns.saturating_mul(STRETCH_MAX);
        let is_bounded = self.longest_ns.iter().all(|ns| *ns <= longest_ns_max);
        debug_assert!(is_bounded, "a response beyond the longest timeout does not count");
    }

    /// Returns the timeout in ns.
    #[must_use]
    pub fn ns(&self, now: Mono) -> u64 {
        let [current_ns, previous_ns] = self.longest_ns;
        let longest_ns = match now.since_ns(self.period_began) / self.period_ns().max(1) {
            0 => current_ns.max(previous_ns),
            1 => current_ns,
            _ => 0,
        };
        let wanted_ns = longest_ns.saturating_mul(RESPONSES_PER_TIMEOUT);
        wanted_ns.clamp(self.configured_ns, self.configured_ns.saturating_mul(STRETCH_MAX))
    }

    fn period_ns(&self) -> u64 {
        self.configured_ns.saturating_mul(TIMEOUTS_PER_PERIOD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Mono {
        Mono::from_ns(ns)
    }

    //= spec/ordering.md#R55
    #[test]
    fn slow_responses_lengthen_the_timeout_within_a_bound() {
        let mut timeout = AdaptiveTimeout::new(100);
        assert_eq!(timeout.ns(at(1_000)), 100);
        timeout.on_response(at(1_000), 20);
        assert_eq!(timeout.ns(at(1_000)), 100);
        timeout.on_response(at(1_010), 60);
        assert_eq!(timeout.ns(at(1_020)), 240);
        timeout.on_response(at(1_030), 1_001);
        assert_eq!(timeout.ns(at(1_040)), 240, "the peer was stopped");
        timeout.on_response(at(1_050), 1_000);
        assert_eq!(timeout.ns(at(1_060)), 1_000);
    }

    #[test]
    fn quick_responses_restore_the_timeout_after_two_periods() {
        let mut timeout = AdaptiveTimeout::new(100);
        timeout.on_response(at(1_000), 60);
        timeout.on_response(at(2_000), 10);
        assert_eq!(timeout.ns(at(2_999)), 240);
        assert_eq!(timeout.ns(at(3_000)), 100);
        timeout.on_response(at(3_000), 60);
        assert_eq!(timeout.ns(at(9_000)), 100, "after silence");
        assert_eq!(AdaptiveTimeout::new(0).ns(at(5)), 0);
    }
}
