//! Samples the queue lengths by tier.

use std::collections::BTreeMap;

use onepipe_sim_engine::NANOSECOND;
use onepipe_sim_network::{LinkId, Network};
use onepipe_topology::Node as Vertex;

use super::application::TestbedApp;
use super::node::Node;

/// Samples the longest queue of the links between each pair of tiers.
#[derive(Debug, Default)]
pub(super) struct QueueSampler {
    /// Links by the tiers that they lead from and to: 1 for hosts, 2 for the switches above them.
    groups: BTreeMap<(u8, u8), Vec<LinkId>>,
    /// By tiers, the sum over all samples of the longest queue, in bytes.
    longest: BTreeMap<(u8, u8), u64>,
    samples: u64,
    /// Rates of a host's link and of a link between switches.
    bits_per_s: (u64, u64),
}

impl QueueSampler {
    /// Sampling interval.
    pub const EVERY_PS: u64 = 10_000 * NANOSECOND;

    pub fn new(network: &Network<Node, TestbedApp>, bits_per_s: (u64, u64)) -> Self {
        let vertices: Vec<Vertex> = network.topology().nodes().collect();
        let mut groups: BTreeMap<(u8, u8), Vec<LinkId>> = BTreeMap::new();
        for (link, from, to) in network.links() {
            let tier = |node: usize| network.topology().tier(vertices[node]);
            groups.entry((tier(from.index()), tier(to.index()))).or_default().push(link);
        }
        Self { groups, bits_per_s, ..Self::default() }
    }

    pub fn sample(&mut self, network: &Network<Node, TestbedApp>) {
        self.samples += 1;
        for (tiers, links) in &self.groups {
            let longest = links.iter().map(|link| network.backlog_bytes(*link)).max();
            *self.longest.entry(*tiers).or_default() += longest.unwrap_or(0);
        }
    }

    /// Returns, for each pair of tiers, the mean of the longest queue: the time in us that it takes
    /// to drain.
    pub fn longest_us(&self) -> impl Iterator<Item = (String, f64)> + '_ {
        self.longest.iter().map(|((from, to), bytes)| {
            let (host, switch) = self.bits_per_s;
            let bits_per_s = if *from.min(to) == 1 { host } else { switch };
            let us = *bytes as f64 * 8e6 / bits_per_s as f64 / self.samples as f64;
            (format!("queue_{from}_{to}_us"), us)
        })
    }
}
