//! When a message is sent again.

use alloc::collections::BTreeMap;

use onepipe_base::{Mono, ProcessId, ResponseTime};

/// Limit on the doublings of a retransmission timeout.
const DOUBLINGS_MAX: u32 = 6;

/// The retransmission timeouts of messages to other processes, from their response times.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Timeouts {
    min_ns: u64,
    times: BTreeMap<ProcessId, ResponseTime>,
}

impl Timeouts {
    pub fn new(min_ns: u64) -> Self {
        Self { min_ns, times: BTreeMap::new() }
    }

    /// Returns the deadline of a message that is sent now, after this number of repetitions.
    pub fn deadline(&self, now: Mono, to: ProcessId, repeated: u32) -> Mono {
        let estimated_ns = self.times.get(&to).map_or(0, ResponseTime::timeout_ns);
        now.after_ns(estimated_ns.max(self.min_ns) << repeated.min(DOUBLINGS_MAX))
    }

    /// Adds the response time of a message that was sent at `sent_at`, and not repeated.
    pub fn on_response(&mut self, now: Mono, from: ProcessId, sent_at: Mono) {
        self.times.entry(from).or_default().on_sample(now.since_ns(sent_at));
    }
}
