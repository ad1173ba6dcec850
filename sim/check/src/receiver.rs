//! One life of a process, as a receiver: I1, I3, I9 and B.

use onepipe_base::{ProcessId, Timestamp};

use crate::violation::{Rule, Seen, Violations};

/// What a receiver has been seen to do so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Receiver {
    /// The last delivery: timestamp, sender, its life, index.
    last: Option<(Timestamp, u32, u32, u16)>,
    /// The barrier at the last look.
    barrier: Option<Timestamp>,
    /// The promise at the last look.
    promise: Option<Timestamp>,
}

impl Receiver {
    /// What this process must stamp above, if it has delivered anything.
    pub fn floor(&self) -> Option<Timestamp> {
        self.last.map(|(stamp, ..)| stamp)
    }

    #[inline]
    pub fn on_delivered(
        &mut self,
        process: ProcessId,
        now: (Timestamp, u32, u32, u16),
        at_ns: u64,
        log: &mut Violations,
    ) {
        if let Some(before) = self.last
            && before >= now
        {
            log.add(Rule::I1, at_ns, Seen::NotAscending { process, before, now });
        }
        let stamp = now.0;
        if let Some(low) = self.barrier
            && stamp < low
        {
            let seen = Seen::OutsideBarriers { process, stamp, low: Some(low), high: None };
            log.add(Rule::B, at_ns, seen);
        }
        self.last = Some(self.last.map_or(now, |before| before.max(now)));
    }

    /// The process is drained: what it says of its barrier and its promise.
    #[inline]
    pub fn on_drained(
        &mut self,
        process: ProcessId,
        barrier: Option<Timestamp>,
        promise: Option<Timestamp>,
        is_sending: bool,
        at_ns: u64,
        log: &mut Violations,
    ) {
        if let (Some(before), Some(now)) = (self.barrier, barrier)
            && now < before
        {
            log.add(Rule::I9, at_ns, Seen::BarrierBack { process, before, now });
        }
        if let (Some(before), Some(now)) = (self.promise, promise)
            && now < before
        {
            log.add(Rule::I9, at_ns, Seen::BarrierBack { process, before, now });
        }
        if let Some(stamp) = self.floor() {
            if barrier.is_none_or(|high| stamp >= high) {
                let seen = Seen::OutsideBarriers { process, stamp, low: None, high: barrier };
                log.add(Rule::B, at_ns, seen);
            }
            if let Some(now) = promise
                && now <= stamp
                && !is_sending
            {
                log.add(Rule::I3, at_ns, Seen::NotCausal { process, now, floor: stamp });
            }
        }
        self.barrier = self.barrier.max(barrier);
        self.promise = self.promise.max(promise);
    }
}
