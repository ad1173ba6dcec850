//! Traffic patterns: the flows to be opened.

use onepipe_sim_engine::Random;

/// A flow to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowSpec {
    /// Start, in ns of virtual time.
    pub at_ns: u64,
    /// The sending host.
    pub from: u32,
    /// The receiving host.
    pub to: u32,
    /// Length; `None` without an end.
    pub bytes: Option<u64>,
}

/// Returns endless flows, `flows` from each host and to each host, opened within the first 100 us.
///
/// Destinations are drawn: one shift of all hosts for each flow, so that all hosts receive equally
/// many.
pub fn background(hosts: u32, flows: u32, seed: u64) -> Vec<FlowSpec> {
    let mut random = Random::named(seed, "background flows", 0);
    let mut shifts: Vec<u32> = Vec::new();
    let mut specs = Vec::new();
    for _ in 0..flows {
        // Every distance is used once before one is repeated.
        if shifts.is_empty() {
            shifts = (1..hosts).collect();
        }
        if shifts.is_empty() {
            break;
        }
        let drawn = random.below(shifts.len() as u64) as usize;
        let shift = shifts.swap_remove(drawn);
        for from in 0..hosts {
            let to = (from + shift) % hosts;
            specs.push(FlowSpec { at_ns: random.below(100_000), from, to, bytes: None });
        }
    }
    specs
}

/// Many hosts that reply to one at the same time, repeatedly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Incast {
    /// The receiver.
    pub to: u32,
    /// Number of senders: the hosts that follow the receiver.
    pub senders: u32,
    /// Length of each reply, in bytes.
    pub bytes: u64,
    /// Interval of rounds, ns.
    pub every_ns: u64,
    /// Number of rounds.
    pub rounds: u32,
}

impl Incast {
    /// Returns the replies, among `hosts` hosts. All of a round start at once.
    pub fn specs(&self, hosts: u32) -> Vec<FlowSpec> {
        let senders = self.senders.min(hosts.saturating_sub(1));
        let round = |round: u32| {
            let at_ns = u64::from(round) * self.every_ns;
            (1..=senders).map(move |distance| {
                let from = (self.to + distance) % hosts;
                FlowSpec { at_ns, from, to: self.to, bytes: Some(self.bytes) }
            })
        };
        (0..self.rounds).flat_map(round).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn background_flows_are_balanced() {
        for (hosts, flows) in [(32, 10), (4, 10), (2, 3)] {
            let specs = background(hosts, flows, 7);
            assert_eq!(specs, background(hosts, flows, 7));
            for host in 0..hosts {
                let sent = specs.iter().filter(|spec| spec.from == host).count();
                let received = specs.iter().filter(|spec| spec.to == host).count();
                assert_eq!((sent, received), (flows as usize, flows as usize));
            }
            assert!(specs.iter().all(|spec| spec.from != spec.to));
        }
        assert_ne!(background(32, 10, 7), background(32, 10, 8));
        assert_eq!(background(1, 10, 7), [], "no other host");
    }

    #[test]
    fn incast_repeats_the_same_senders() {
        let incast = Incast { to: 3, senders: 9, bytes: 64, every_ns: 1_000, rounds: 2 };
        let specs = incast.specs(4);
        let pairs: Vec<_> = specs.iter().map(|one| (one.at_ns, one.from, one.to)).collect();
        assert_eq!(
            pairs,
            [(0, 0, 3), (0, 1, 3), (0, 2, 3), (1_000, 0, 3), (1_000, 1, 3), (1_000, 2, 3)]
        );
    }
}
