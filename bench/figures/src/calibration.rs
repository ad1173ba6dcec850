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
    /// The testbed of 1Pipe. One experiment provides what the text does not: *the latency of
    /// unordered messages on an idle network* (figure 9a, "unorder": 2.2 us over one switch, 5.25
    /// over five), two links against six, which gives 0.76 us per link and 0.34 per host. The rest
    /// is from the text: 5 M messages/s per process, 80 M per host, clock errors of 0.3 us on
    /// average (here: uniform within 0.6), beacons every 3 us, 2 us for a switch's delegate, "10 us
    /// for the 5-hop topology" (sections 7.1 and 7.2).
    pub const PAPER: Self = Self {
        link_ns: 762,
        host_ns: 338,
        message_ns: 200,
        host_message_ns: 12,
        clock_ns: 600,
        beacon_ns: 3_000,
        detour_ns: 2_000,
    };

    /// Returns the network with queues shared by background flows, which may overflow. Frames are
    /// marked from 65 packets on (DCTCP, SIGCOMM 2010, for 10 Gbit/s; more than the seventh of a
    /// round trip that it recommends here).
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
