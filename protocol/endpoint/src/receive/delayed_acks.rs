//! Acknowledgements that wait for a data frame that can carry them, each until its delay ends.

use alloc::collections::VecDeque;

use onepipe_base::Mono;
use onepipe_wire::AckDelay;

/// The first packet of a sender since its last acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Delayed {
    pub peer_index: u32,
    pub since: Mono,
}

/// The delayed acknowledgements of all senders, in the order in which their delays began.
///
/// An entry stays when its acknowledgement is sent earlier: to find it would cost more than to
/// ignore it when its delay ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct DelayedAcks {
    queue: VecDeque<Delayed>,
    delay_ns: u64,
}

impl DelayedAcks {
    /// Part of the delay, as a shift, during which an acknowledgement waits for further packets
    /// before it travels with data: on a busy connection one of many packets carries it.
    const COLLECT_SHIFT: u32 = 2;

    pub fn new() -> Self {
        Self { queue: VecDeque::new(), delay_ns: AckDelay::NS_MAX }
    }

    /// Limits the delay to what a sender permits. One limit holds for all, the lowest: so the
    /// delays end in the order in which they began.
    pub fn permit(&mut self, delay_ns: u64) {
        self.delay_ns = self.delay_ns.min(delay_ns);
    }

    /// Starts the delay of a sender's acknowledgement.
    #[inline]
    pub fn push(&mut self, now: Mono, peer_index: usize) {
        debug_assert!(self.queue.back().is_none_or(|last| last.since <= now), "time ascends");
        self.queue.push_back(Delayed { peer_index: peer_index as u32, since: now });
    }

    /// Returns when the first delay ends.
    #[inline]
    pub fn deadline(&self) -> Option<Mono> {
        Some(self.queue.front()?.since.after_ns(self.delay_ns))
    }

    /// Returns the next sender whose delay has ended.
    pub fn pop_due(&mut self, now: Mono) -> Option<Delayed> {
        self.pop_after(now, self.delay_ns)
    }

    /// Returns the next sender of whose delay half has passed.
    pub fn pop_half_due(&mut self, now: Mono) -> Option<Delayed> {
        self.pop_after(now, self.delay_ns / 2)
    }

    /// Returns the next sender, whether or not its delay has ended.
    pub fn pop(&mut self) -> Option<Delayed> {
        self.queue.pop_front()
    }

    fn pop_after(&mut self, now: Mono, delay_ns: u64) -> Option<Delayed> {
        self.queue.pop_front_if(|first| first.since.after_ns(delay_ns) <= now)
    }

    /// Returns whether an acknowledgement has waited for long enough, in ticks of [`AckDelay`], to
    /// travel with data.
    #[inline]
    pub fn may_travel(&self, waited: u16) -> bool {
        AckDelay(waited).ns() >= self.delay_ns >> Self::COLLECT_SHIFT
    }

    pub fn iter(&self) -> impl Iterator<Item = &Delayed> {
        self.queue.iter()
    }
}
