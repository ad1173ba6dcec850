//! Parameters of the simulated testbed, with their sources.

use std::sync::OnceLock;

use anyhow::Result;
use onepipe_sim_network::{ClockTail, Config, LinkConfig, Testbed};
use serde::{Deserialize, Serialize};

/// Costs of the testbed's components. Times in ns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Link delay, including the switch at its end.
    pub link_ns: u64,
    /// Delay that a host adds on transmission and on reception: processor, bus and NIC.
    pub host_ns: u64,
    /// CPU time for each message that a process sends, of any kind.
    pub message_ns: u64,
    /// CPU time of a whole host for each message, with all its cores.
    pub host_message_ns: u64,
    /// Largest offset of three of four clocks.
    pub clock_ns: u64,
    /// Largest offset of the fourth.
    pub clock_tail_ns: u64,
    /// Beacon interval.
    pub beacon_ns: u64,
    /// Detour of a beacon to a switch's delegate and back, at every switch.
    pub detour_ns: u64,
}

/// Returns the CPU time of a message on one core of this machine, in ns. Measured once per process.
pub(crate) fn message_ns() -> Result<f64> {
    static MEASURED: OnceLock<f64> = OnceLock::new();
    match MEASURED.get() {
        Some(ns) => Ok(*ns),
        None => {
            let ns = onepipe_bench_micro::message_ns()?;
            Ok(*MEASURED.get_or_init(|| ns))
        }
    }
}

impl Calibration {
    /// The testbed of 1Pipe: that of [`Testbed::PAPER`], which gives the sources of delays, clocks
    /// and beacons, with the costs of processes and delegates:
    ///
    /// - 5 M messages/s per process and 80 M per host (section 7.2);
    /// - 1.34 us for a switch's delegate: in figure 9a hosts as delegates add this over one switch
    ///   (5.84 and 4.50 us). That point is used for calibration. The text has 2 us a switch ("10 us
    ///   for the 5-hop topology", section 7.2), its points 7.55 us over five.
    pub const PAPER: Self = Self {
        link_ns: Testbed::PAPER.link_ns,
        host_ns: Testbed::PAPER.host_ns,
        message_ns: 200,
        host_message_ns: 12,
        clock_ns: Testbed::PAPER.clock_ns,
        clock_tail_ns: Testbed::PAPER.clock_tail.offset_ns_max,
        beacon_ns: Testbed::PAPER.beacon_ns,
        detour_ns: 1_340,
    };

    /// Returns the network for background flows. Frames are marked from a queue of `mark_packets`
    /// packets of 1,500 bytes on. With `queue_bytes` queues overflow; otherwise nothing is lost, as
    /// in all other figures.
    pub(crate) fn shared_network(
        &self,
        switch_link_bits_per_s: u64,
        queue_bytes: Option<u32>,
        mark_packets: u32,
    ) -> Config {
        let Config { host_link, switch_link, .. } = self.network();
        let queue_bytes_max = queue_bytes.map_or(host_link.queue_bytes_max, u64::from);
        let ecn_threshold_bytes = u64::from(mark_packets) * 1_500;
        let rate_bits_per_s = switch_link_bits_per_s;
        let host_link = LinkConfig { queue_bytes_max, ecn_threshold_bytes, ..host_link };
        let switch_link = LinkConfig { queue_bytes_max, ecn_threshold_bytes, ..switch_link };
        let switch_link = LinkConfig { rate_bits_per_s, ..switch_link };
        Config { host_link, switch_link, ..self.network() }
    }

    /// Returns the network: 100 Gbit/s everywhere.
    pub(crate) fn network(&self) -> Config {
        let clock_tail =
            ClockTail { offset_ns_max: self.clock_tail_ns, ..Testbed::PAPER.clock_tail };
        let testbed = Testbed {
            link_ns: self.link_ns,
            host_ns: self.host_ns,
            clock_ns: self.clock_ns,
            clock_tail,
            beacon_ns: self.beacon_ns,
        };
        testbed.network()
    }
}
