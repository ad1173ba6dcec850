//! Rare probes of unreachable endpoints, spread evenly over time.

use onepipe_base::Mono;
use onepipe_reliability::IndexQueue;

/// When each unreachable endpoint is probed next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Probes {
    /// Endpoints, ordered by time.
    queue: IndexQueue<Mono>,
    last_at: Mono,
    /// Interval between two probes of an endpoint, and of any two endpoints, in ns.
    interval_ns: u64,
    spacing_ns: u64,
}

impl Probes {
    pub fn new(nodes: u32, interval_ns: u64) -> Self {
        Self {
            queue: IndexQueue::new(nodes as usize),
            last_at: Mono::from_ns(0),
            interval_ns,
            spacing_ns: interval_ns / u64::from(nodes),
        }
    }

    //= spec/arbiter.md#R26
    /// Schedules the next probe of an endpoint, unless one is scheduled.
    pub fn schedule(&mut self, now: Mono, src: u16) {
        if !self.queue.contains(src) {
            self.last_at =
                now.after_ns(self.interval_ns).max(self.last_at.after_ns(self.spacing_ns));
            self.queue.push(src, self.last_at);
        }
    }

    /// Removes and returns an endpoint whose probe is due.
    pub fn pop_due(&mut self, now: Mono) -> Option<u16> {
        self.queue.pop_if(|due| due <= now)
    }

    pub fn due(&self) -> Option<Mono> {
        self.queue.front().map(|(_, due)| due)
    }

    pub fn contains(&self, src: u16) -> bool {
        self.queue.contains(src)
    }

    pub fn check_invariants(&self) {
        self.queue.check_invariants();
        let is_sorted = self.queue.iter().map(|(_, due)| due).is_sorted();
        assert!(is_sorted, "probes are in the order of their times");
        let last = self.queue.iter().map(|(_, due)| due).max();
        assert!(last <= Some(self.last_at), "the last one is known");
    }
}
