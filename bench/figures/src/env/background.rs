//! Background flows on the links of the testbed.

use onepipe_arbiter::{Arbiter, ArbiterConfig, Client, ClientConfig, Config, Core};
use onepipe_base::{Port, ProcessId};
use onepipe_sim_arbiter::{ArbiterHost, Arbitration, Gated, fabric_of};
use onepipe_sim_network::LinkConfig;
use onepipe_sim_traffic::{CongestionControl, FlowSpec, Stack, TcpConfig, background};
use onepipe_topology::Topology;
use onepipe_wire::{Opcode, parse_header};
use serde::{Deserialize, Serialize};

/// A port's share of the buffer of the paper's switch: 16 MB for 32 ports. The paper does not give
/// its queue capacity; 16 MB is an assumption, from another switch of that generation with 32 ports
/// of 100 Gbit/s (Delta AG9032, user manual, section 2.3: "16MB buffer memory").
pub(crate) const QUEUE_BYTES: u32 = (16 << 20) / 32;

/// Length of the longest frame in bytes.
const FRAME_LEN: usize = 1_472;
/// Share of each link that is reserved for unscheduled traffic, in thousandths: ordered messages
/// and their beacons (figure 13b: 0.3 % of 100 Gbit/s at 3 us), control packets (F-E: 1 %).
const RESERVE_PERMILLE: u32 = 30;

/// Delay before scheduled flows start, in ns: all hosts have joined by then.
const START_DELAY_NS: u64 = 300_000;

/// Reordering tolerance of a scheduled flow in packets: two clocks differ by up to ten timeslots.
const REORDER_PACKETS: u64 = 32;

/// Returns the default of [`Background::window_bytes`]: the longest window without scaling (RFC
/// 9293, section 3.1). The paper gives none: this is an assumption.
const fn window_bytes() -> u32 {
    1 << 16
}

/// Returns the default of [`Background::mark_packets`]: that of the DCTCP paper (SIGCOMM 2010) at
/// 10 Gbit/s. A seventh of a round trip, which that paper recommends, would be less here.
const fn mark_packets() -> u32 {
    65
}

/// The machine of the background flows, which shares a host with its processes.
#[expect(clippy::large_enum_variant, reason = "short-lived: destructured at once")]
pub(super) enum BackgroundTraffic {
    Stack(Stack),
    Gated(Box<Gated<Stack>>),
    Arbiter(Box<ArbiterHost>),
}

/// Endless flows, equally many from each host and to each host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Background {
    /// Number of flows from each host.
    pub flows: u32,
    /// Whether flows react to marks (DCTCP); otherwise they react to loss alone (Reno).
    pub is_dctcp: bool,
    /// Whether an arbiter on the last host schedules the flows; that host has none.
    #[serde(default)]
    pub is_scheduled: bool,
    /// Oversubscription of the links between switches. It reduces the number of links; their rate
    /// only where their number is not a multiple of it.
    pub oversubscription: u32,
    /// Capacity of the queue before a link, in bytes, if frames beyond it are lost. `None`: pause
    /// frames hold them back (1Pipe section 7.1), so nothing is lost.
    #[serde(default)]
    pub queue_bytes: Option<u32>,
    /// Number of packets of 1,500 bytes from which on a queue marks frames (ECN).
    #[serde(default = "mark_packets")]
    pub mark_packets: u32,
    /// Receive window of a flow, in bytes.
    #[serde(default = "window_bytes")]
    pub window_bytes: u32,
    /// Whether links have two classes of strict priority: flows are served after messages, beacons
    /// and control packets.
    #[serde(default)]
    pub has_classes: bool,
}

impl Background {
    /// Creates flows on a fabric that is not oversubscribed.
    pub const fn new(flows: u32, is_dctcp: bool) -> Self {
        Self {
            flows,
            is_dctcp,
            is_scheduled: false,
            oversubscription: 1,
            queue_bytes: None,
            mark_packets: mark_packets(),
            window_bytes: window_bytes(),
            has_classes: false,
        }
    }

    /// Returns the number of classes, and the function that classifies a frame.
    pub(super) fn classes(self) -> (u8, fn(&[u8]) -> u8) {
        match self.has_classes {
            true => (2, |frame| u8::from(is_of_flow(frame))),
            false => (1, |_| 0),
        }
    }

    /// Returns the number of parallel links, four on the testbed, and the rate of each in bits/s.
    pub(super) fn bundle(self) -> (u32, u64) {
        let oversubscription = self.oversubscription.max(1);
        let links = 4u32.div_ceil(oversubscription);
        (links, 400_000_000_000 / u64::from(oversubscription * links))
    }

    /// Returns the flows to start.
    pub(super) fn specs(self, hosts: u32, seed: u64) -> Vec<FlowSpec> {
        if !self.is_scheduled {
            return background(hosts, self.flows, seed);
        }
        // Data sent before all links are up is lost, and Reno takes long to recover from that.
        let all = background(hosts - 1, self.flows, seed).into_iter();
        all.map(|spec| FlowSpec { at_ns: spec.at_ns + START_DELAY_NS, ..spec }).collect()
    }

    /// Returns the machine of the background flows at a host, whose NIC is at port `card`.
    pub(super) fn traffic_of(
        self,
        topology: &Topology,
        host: u32,
        card: Port,
    ) -> BackgroundTraffic {
        let hosts = topology.hosts();
        let (process, arbiter_host) = (ProcessId(host), hosts - 1);
        if !self.is_scheduled {
            return BackgroundTraffic::Stack(self.stack(TcpConfig::new(process, card)));
        }
        let link = LinkConfig::default();
        let arbitration =
            Arbitration { reserve_permille: RESERVE_PERMILLE, ..Arbitration::of(hosts) };
        let slot_ns = arbitration.slot_ns(&link, FRAME_LEN);
        let (core, labels) = fabric_of(topology, arbiter_host);
        if host == arbiter_host {
            let config = ArbiterConfig::new(process, Core::One { nodes: arbiter_host }, slot_ns);
            let allocator = Config { share_slots: 1, ..config.allocator };
            let arbiter = Arbiter::new(ArbiterConfig { core, allocator, ..config });
            let arbiter = arbiter.expect("the testbed is a tree");
            return BackgroundTraffic::Arbiter(Box::new(ArbiterHost { arbiter, card }));
        }
        let config = ClientConfig {
            labels,
            // More than a host sends while it waits for a grant, for 65 us and a round trip.
            slots_max: 4 * 1_024,
            queue_slots_max: 512,
            control_interval_ns: u64::from(arbitration.control_interval_slots) * slot_ns,
            frame_len_max: FRAME_LEN,
            ..ClientConfig::new(process, arbiter_host, ProcessId(arbiter_host), slot_ns)
        };
        let client = Client::new(config).expect("the settings are in range");
        let setup = onepipe_sim_arbiter::Setup::rack().scheduled();
        let segment_len = setup.segment_len();
        // Each packet takes the path of its timeslot.
        let reorder_threshold = REORDER_PACKETS;
        let tcp = TcpConfig { segment_len, reorder_threshold, ..TcpConfig::new(process, card) };
        let stack = self.stack(tcp);
        BackgroundTraffic::Gated(Box::new(Gated::new(stack, client, card)))
    }

    /// Returns the TCP stack of one host.
    fn stack(self, config: TcpConfig) -> Stack {
        let congestion_control =
            if self.is_dctcp { CongestionControl::Dctcp } else { CongestionControl::Reno };
        let window_bytes_max = self.window_bytes.into();
        let config = TcpConfig { congestion_control, window_bytes_max, ..config };
        Stack::new(config).expect("the defaults are in range")
    }
}

/// Whether a frame belongs to a flow, scheduled or not.
fn is_of_flow(frame: &[u8]) -> bool {
    parse_header(frame).is_ok_and(|(_, opcode)| matches!(opcode, Opcode::Slot | Opcode::Foreign))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oversubscription_divides_bundle_capacity() {
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
