//! Flows that share the links with what is measured.

use onepipe_base::{Port, ProcessId};
use onepipe_sim_traffic::{Demand, React, Stack, TcpConfig, background};
use serde::{Deserialize, Serialize};

/// A port's share of the buffer of the paper's switch: 16 MB for 32 ports. The paper does not say
/// how long its queues were; 16 MB is an assumption, from another switch of that generation with 32
/// ports of 100 Gbit/s (Delta AG9032, user manual, section 2.3: "16MB buffer memory").
pub(crate) const QUEUE_OCTETS: u32 = (16 << 20) / 32;

const fn queue_octets() -> u32 {
    QUEUE_OCTETS
}

/// Flows without an end, equally many from each host and to each host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Background {
    /// From each host.
    pub flows: u32,
    /// They react to marks as DCTCP does; else to loss alone, as Reno.
    pub is_dctcp: bool,
    /// The links between switches carry so many times less than all hosts can send. There are fewer
    /// of them then, not slower ones, as far as they can be divided.
    pub oversubscription: u32,
    /// The longest queue before a link, in octets.
    #[serde(default = "queue_octets")]
    pub queue_octets: u32,
}

impl Background {
    /// So many flows from each host, on links of which no pair of tiers is narrower than another.
    pub const fn new(flows: u32, is_dctcp: bool) -> Self {
        Self { flows, is_dctcp, oversubscription: 1, queue_octets: QUEUE_OCTETS }
    }

    /// How many parallel links there are instead of the testbed's four, and the rate of each in
    /// bits/s.
    pub(super) fn bundle(self) -> (u32, u64) {
        let times = self.oversubscription.max(1);
        let links = 4u32.div_ceil(times);
        (links, 400_000_000_000 / u64::from(times * links))
    }

    /// The flows to be opened.
    pub(super) fn demands(self, hosts: u32, seed: u64) -> Vec<Demand> {
        background(hosts, self.flows, seed)
    }

    /// The TCP of one host.
    pub(super) fn stack(self, host: ProcessId, card: Port) -> Stack {
        let react = if self.is_dctcp { React::MarkedShare } else { React::Loss };
        let config = TcpConfig { react, ..TcpConfig::new(host, card) };
        Stack::new(config).expect("the defaults are in range")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrower_fabric_has_fewer_links_and_as_little_capacity_as_was_asked_for() {
        let bundle = |oversubscription| {
            Background { oversubscription, ..Background::new(1, false) }.bundle()
        };
        assert_eq!(bundle(1), (4, 100_000_000_000));
        assert_eq!(bundle(2), (2, 100_000_000_000));
        assert_eq!(bundle(4), (1, 100_000_000_000));
        for times in 1..=6 {
            let (links, rate) = bundle(times);
            let all = u64::from(links) * rate * u64::from(times);
            assert!(all.abs_diff(400_000_000_000) < 1_000, "{times}: {all}");
        }
    }
}
