//! Parameters of the simulated testbed, with their sources.

use std::sync::OnceLock;

use anyhow::Result;
use onepipe_sim_network::{ClockConfig, Config, LinkConfig};
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
    /// Largest clock offset.
    pub clock_ns: u64,
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
    /// The testbed of 1Pipe.
    ///
    /// The delays of links and hosts are not in the text. They follow from the latency of unordered
    /// messages on an idle network (figure 9a, "unorder"): 2.2 us over one switch, thus two links
    /// and two hosts, and 5.25 us over five switches, thus six links and two hosts. This gives
    /// 0.76 us per link and 0.34 us per host.
    ///
    /// The other values are from the text (sections 7.1 and 7.2): 5 M messages/s per process, 80 M
    /// per host, clock errors of 0.3 us on average (here: uniform within 0.6), beacons every 3 us,
    /// and 2 us for a switch's delegate ("10 us for the 5-hop topology").
    pub const PAPER: Self = Self {
        link_ns: 762,
        host_ns: 338,
        message_ns: 200,
        host_message_ns: 12,
        clock_ns: 600,
        beacon_ns: 3_000,
        detour_ns: 2_000,
    };

    /// Returns the network for background flows: queues have `queue_bytes` and may overflow. Frames
    /// are marked from a queue of 65 packets on, as the DCTCP paper (SIGCOMM 2010) does at
    /// 10 Gbit/s; a seventh of a round trip, which that paper recommends, would be less here.
    pub(crate) fn shared_network(&self, switch_link_bits_per_s: u64, queue_bytes: u32) -> Config {
        let Config { host_link, switch_link, .. } = self.network();
        let queue_bytes_max = u64::from(queue_bytes);
        let rate_bits_per_s = switch_link_bits_per_s;
        Config {
            host_link: LinkConfig { queue_bytes_max, ..host_link },
            switch_link: LinkConfig { queue_bytes_max, rate_bits_per_s, ..switch_link },
            ..self.network()
        }
    }

    /// Returns the network: 100 Gbit/s everywhere.
    pub(crate) fn network(&self) -> Config {
        // RoCE: pause frames instead of overflow (1Pipe section 7.1).
        let queue_bytes_max = 64 << 20;
        let propagation_ns = self.link_ns;
        let link = LinkConfig { propagation_ns, queue_bytes_max, ..LinkConfig::default() };
        let propagation_ns = self.link_ns + self.host_ns;
        Config {
            host_link: LinkConfig { propagation_ns, ..link },
            switch_link: link,
            clocks: ClockConfig { offset_ns_max: self.clock_ns, drift_ppb_max: 0 },
            ..Config::default()
        }
    }
}
