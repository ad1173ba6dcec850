//! Acknowledgements that wait to leave in one frame to the processes of a host.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use onepipe_base::Mono;
use onepipe_wire::{AckBundle, BUNDLED_ACKS_MAX, BundledAck, HEADER_LEN};

/// Number of hosts for which acknowledgements wait at the same time. Those for other hosts pass
/// alone.
const HOSTS_MAX: usize = 64;

/// The acknowledgements for one host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Bundle {
    /// The number of the host.
    host: u32,
    /// When a frame with acknowledgements last left for the host.
    sent_at: Option<Mono>,
    acks: Vec<BundledAck>,
}

//= spec/ordering.md#R91
/// Acknowledgements for the processes of other hosts. The first one for a host passes at once;
/// those that follow within [`crate::Config::ack_bundle_ns`] wait for each other that long.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AckBundles {
    hold_ns: u64,
    /// Maximum number of acknowledgements in a frame.
    acks_max: usize,
    /// By host modulo [`HOSTS_MAX`]. Empty until the first acknowledgement.
    bundles: Vec<Bundle>,
    /// Bundles that have acknowledgements, in the order in which they are due.
    queue: VecDeque<(Mono, usize)>,
}

impl AckBundles {
    /// Creates the stage for frames of at most `frame_len_max` bytes.
    pub fn new(hold_ns: u64, frame_len_max: usize) -> Self {
        let fits = |count: &usize| HEADER_LEN + AckBundle::len_of(*count) <= frame_len_max;
        let acks_max = (1..=BUNDLED_ACKS_MAX).rev().find(fits).unwrap_or(1);
        Self { hold_ns, acks_max, bundles: Vec::new(), queue: VecDeque::new() }
    }

    /// Adds an acknowledgement for a process of the host with this number. Returns false if the
    /// acknowledgement is to pass alone.
    pub fn add(&mut self, now: Mono, host: u32, ack: BundledAck) -> bool {
        if self.bundles.is_empty() {
            self.bundles.resize_with(HOSTS_MAX, Bundle::default);
        }
        let slot = host as usize % HOSTS_MAX;
        let bundle = &mut self.bundles[slot];
        let is_idle = bundle.acks.is_empty();
        let was_sent = bundle.host == host
            && bundle.sent_at.is_some_and(|sent| now.since_ns(sent) < self.hold_ns);
        if is_idle && !was_sent {
            (bundle.host, bundle.sent_at) = (host, Some(now));
            return false;
        }
        if bundle.host != host || bundle.acks.len() >= self.acks_max {
            return false;
        }
        if is_idle {
            self.queue.push_back((now.after_ns(self.hold_ns), slot));
        }
        bundle.acks.push(ack);
        true
    }

    /// Returns when the next bundle is due.
    #[inline]
    pub fn due(&self) -> Option<Mono> {
        self.queue.front().map(|(due, _)| *due)
    }

    /// Takes the next bundle that is due into `acks`, which is empty. Returns false without one.
    pub fn take_due(&mut self, now: Mono, acks: &mut Vec<BundledAck>) -> bool {
        debug_assert!(acks.is_empty(), "the last bundle was written");
        let Some((_, slot)) = self.queue.pop_front_if(|(due, _)| *due <= now) else {
            return false;
        };
        let bundle = &mut self.bundles[slot];
        debug_assert!(!bundle.acks.is_empty(), "an empty bundle is due");
        bundle.sent_at = Some(now);
        acks.append(&mut bundle.acks);
        true
    }

    /// Asserts what holds between any two calls.
    pub fn check_invariants(&self) {
        let waiting = self.bundles.iter().filter(|bundle| !bundle.acks.is_empty()).count();
        assert_eq!(waiting, self.queue.len(), "each bundle with acknowledgements is due once");
        assert!(self.queue.iter().is_sorted_by_key(|(due, _)| *due), "bundles are due in turn");
        let mut all = self.bundles.iter();
        assert!(all.all(|bundle| bundle.acks.len() <= self.acks_max), "a bundle fits a frame");
    }
}

#[cfg(test)]
mod tests {
    use onepipe_base::{Incarnation, ProcessId, ProcessInstance};

    use super::*;

    fn ack(from: u32) -> BundledAck {
        let from = ProcessInstance { process: ProcessId(from), incarnation: Incarnation(1) };
        BundledAck { from, to: ProcessId(32), ack: [0; 36] }
    }

    fn at(ns: u64) -> Mono {
        Mono::from_ns(ns)
    }

    //= spec/ordering.md#R91
    #[test]
    fn first_passes_and_followers_wait_for_each_other() {
        let mut bundles = AckBundles::new(100, 1_472);
        let mut taken = Vec::new();
        assert!(!bundles.add(at(1_000), 2, ack(0)), "nothing was sent before");
        assert!(bundles.add(at(1_050), 2, ack(1)));
        assert!(bundles.add(at(1_140), 2, ack(2)));
        // Another host in the same slot passes, and so does one in a slot of its own.
        assert!(!bundles.add(at(1_141), 66, ack(3)));
        assert!(!bundles.add(at(1_142), 3, ack(4)));
        bundles.check_invariants();
        assert_eq!(bundles.due(), Some(at(1_150)));
        assert!(!bundles.take_due(at(1_149), &mut taken));
        assert!(bundles.take_due(at(1_150), &mut taken));
        assert_eq!(core::mem::take(&mut taken), [ack(1), ack(2)]);
        assert_eq!(bundles.due(), None);
        // The bundle was the last frame for the host.
        assert!(bundles.add(at(1_249), 2, ack(5)));
        assert!(bundles.take_due(at(1_349), &mut taken));
        assert!(!bundles.add(at(1_449), 2, ack(6)), "a host that was idle");
        bundles.check_invariants();
    }

    #[test]
    fn full_bundle_takes_no_more() {
        for (frame_len_max, most) in [(1_472, BUNDLED_ACKS_MAX), (256, 4)] {
            let mut bundles = AckBundles::new(100, frame_len_max);
            let mut add = || bundles.add(at(5), 2, ack(1));
            assert_eq!((0..20).filter(|_| add()).count(), most);
            bundles.check_invariants();
        }
    }
}
