//! The switch's idea of the time, and what it makes of 48-bit promises.

use onepipe_base::{Now, Promises, Slew, Timestamp};
use onepipe_wire::Header;

use crate::config::QUARTER_RANGE_NS;

/// A reference to expand promises against. It follows the synchronised clock without ever
/// stepping: a step could move it by more than half the range, and then every promise would expand
/// to the wrong turn of the wire's clock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Clock {
    slew: Slew,
    ahead_ns_max: u64,
}

impl Clock {
    pub(crate) fn new(ahead_ns_max: u64) -> Self {
        Self { slew: Slew::new(), ahead_ns_max }
    }

    #[inline]
    pub(crate) fn read(&mut self, now: Now) -> Timestamp {
        self.slew.read(now)
    }

    /// A header's promises, or `None` when they lie absurdly far ahead.
    #[inline]
    pub(crate) fn promises(&self, header: &Header, reference: Timestamp) -> Option<Promises> {
        let promises = header.promises(reference);
        let ahead_ns = promises.barrier.max(promises.commit).since_ns(reference);
        (ahead_ns <= self.ahead_ns_max).then_some(promises)
    }
}

/// What a frame says that bears no promise: a quarter of the wire's range ago.
///
/// Nobody sends a message that old, so it is true of every link. A receiver whose clock is hours
/// off still reads it as the past, where it raises nothing; and a receiver that has heard nothing
/// else on the link holds its barrier until it does, as it must for a link that has not caught up.
pub(crate) const fn no_promise(reference: Timestamp) -> Promises {
    Promises::both(reference.saturating_sub_ns(QUARTER_RANGE_NS))
}
