//! When a risen barrier is advertised before the next beacon instant.

use onepipe_base::Promises;

/// Which rises of the barrier are advertised on an output at once, as soon as the driver drains
/// `poll_transmit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Eager {
    /// No rise: beacons leave at multiples of the interval only. An idle fabric then waits up to an
    /// interval at each hop.
    Never,
    /// Rises by a quarter of a beacon interval or more. All hops send beacons at the same instants,
    /// so the minimum rises by an interval when the last input of an instant has arrived, and the
    /// rise crosses the whole fabric in one go: an idle fabric waits for half an interval in all,
    /// however deep it is (1Pipe section 7.2). A beacon that has left early is not sent again at
    /// the next instant. Clock skew makes a round rise in parts, and each part that is large enough
    /// is advertised: an idle testbed of 32 processes carries 1.6 times the frames.
    ByRound,
    /// Every rise. For links that are fast to send on and slow to wait for. Costs up to a beacon
    /// per port for every drain, so a driver that sets it drains after a batch of frames, not
    /// after each.
    Always,
}

/// The minima of both directions when they were last advertised eagerly.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rounds {
    step_ns: u64,
    up: Option<Promises>,
    down: Option<Promises>,
}

impl Rounds {
    pub(crate) fn new(beacon_interval_ns: u64) -> Self {
        let step_ns = (beacon_interval_ns / 4).max(1);
        debug_assert!(step_ns <= beacon_interval_ns.max(1));
        Self { step_ns, up: None, down: None }
    }

    /// Asserts what holds between any two calls.
    pub(crate) fn check_invariants(&self) {
        assert!(self.step_ns > 0, "every promise ends a round");
    }

    /// Returns whether `up` or `down`, the minimum over all inputs of that direction, has risen by
    /// a quarter of a beacon interval since the last rise recorded for the direction.
    #[inline]
    pub(crate) fn is_over(&mut self, up: Option<Promises>, down: Option<Promises>) -> bool {
        let step_ns = self.step_ns;
        let is_over = |known: &mut Option<Promises>, now: Option<Promises>| {
            let Some(now) = now else { return false };
            let has_risen = known.is_none_or(|known| {
                now.barrier.since_ns(known.barrier) >= step_ns
                    || now.commit.since_ns(known.commit) >= step_ns
            });
            if has_risen {
                *known = Some(now);
            }
            has_risen
        };
        // `|` evaluates both sides: each direction records its own last rise.
        is_over(&mut self.up, up) | is_over(&mut self.down, down)
    }
}

#[cfg(test)]
mod tests {
    use onepipe_base::Timestamp;

    use super::*;

    fn at(barrier: u64, commit: u64) -> Option<Promises> {
        let (barrier, commit) = (Timestamp::from_ns(barrier), Timestamp::from_ns(commit));
        Some(Promises { barrier, commit })
    }

    #[test]
    fn round_ends_when_a_minimum_rises_by_a_quarter_interval() {
        let mut rounds = Rounds::new(3_000);
        assert!(!rounds.is_over(None, None));
        assert!(rounds.is_over(at(9_000, 9_000), None), "the first promise");
        assert!(!rounds.is_over(at(9_749, 9_000), None));
        assert!(
            rounds.is_over(at(9_750, 9_000), None),
            "a quarter of an interval since the last rise"
        );
        assert!(!rounds.is_over(at(10_499, 9_001), None));
        assert!(rounds.is_over(at(10_499, 9_750), None), "commits rise alone");
        assert!(rounds.is_over(at(10_499, 9_750), at(5_000, 5_000)), "the other direction");
        assert!(!rounds.is_over(at(1_000, 1_000), at(2_000, 2_000)), "a joiner is behind");
        rounds.check_invariants();
    }
}
