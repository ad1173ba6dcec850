//! The switch's reference time and the expansion of 48-bit promises.

use onepipe_base::{Mono, Now, Promises, Slew, Timestamp};
use onepipe_wire::Header;

use crate::config::QUARTER_RANGE_NS;

/// The time at which an input is handled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time {
    pub(crate) mono: Mono,
    /// The reference for expanding promises.
    pub(crate) reference: Timestamp,
}

/// The reference for expanding promises. It follows the synchronised clock without ever stepping: a
/// step of more than half the range would expand every promise to the wrong period of the wire
/// clock.
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
    pub(crate) fn read(&mut self, now: Now) -> Time {
        Time { mono: now.mono, reference: self.slew.read(now) }
    }

    //= spec/ordering.md#R17
    /// Returns a header's promises, or `None` if they are too far ahead.
    #[inline]
    pub(crate) fn promises(&self, header: &Header, reference: Timestamp) -> Option<Promises> {
        let promises = header.promises(reference);
        let ahead_ns = promises.barrier.max(promises.commit).since_ns(reference);
        (ahead_ns <= self.ahead_ns_max).then_some(promises)
    }
}

//= spec/ordering.md#R14
/// The promise of a frame that carries none: a quarter of the wire's range ago.
///
/// No message is that old, so the promise holds on every link. A receiver whose clock is hours off
/// still reads it as the past, where it raises nothing; and a receiver without any other promise on
/// the link holds its barrier, as it must for a link that has not caught up.
pub(crate) const fn no_promise(reference: Timestamp) -> Promises {
    Promises::both(reference.saturating_sub_ns(QUARTER_RANGE_NS))
}

/// Whether promises carry a commit: where no commit may be advertised they carry one that is
/// [`QUARTER_RANGE_NS`] old.
#[inline]
pub(crate) fn carries_commit(promises: Promises) -> bool {
    promises.commit.wrapping_add_ns(QUARTER_RANGE_NS / 2) >= promises.barrier
}
