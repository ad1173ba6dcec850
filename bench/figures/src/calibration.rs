//! The numbers of the simulated testbed, and where they come from.

use std::sync::OnceLock;

use anyhow::Result;
use onepipe_sim_network::{ClockConfig, Config, LinkConfig};
use serde::{Deserialize, Serialize};

/// What the parts of the testbed cost. Times in ns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// From one end of a link to the other, the switch at its end included.
    pub link_ns: u64,
    /// What a host adds on its way out and on its way in: processor, bus and network card.
    pub host_ns: u64,
    /// A process sends one message in this time, whatever it is for.
    pub message_ns: u64,
    /// What a whole host needs a message, with all its cores.
    pub host_message_ns: u64,
    /// Clocks are off by up to this.
    pub clock_ns: u64,
    /// Between two beacons.
    pub beacon_ns: u64,
    /// What a beacon's way to a switch's delegate and back takes, at every switch.
    pub detour_ns: u64,
}

/// What a message costs a core of this machine, in ns. Measured once in a run of the program.
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
    /// The testbed of 1Pipe. One experiment gives what the text does not: *the latency of unordered
    /// messages when nothing else is on the network* (figure 9a, "unorder": 2.2 us over one switch,
    /// 5.25 over five), two links against six, which makes 0.76 us a link and 0.34 a host. The rest
    /// is from the text: 5 M messages/s a process, 80 M a host, clocks off by 0.3 us in the mean
    /// (here: evenly within 0.6), beacons every 3 us, 2 us for a switch's delegate, "10 us for the
    /// 5-hop topology" (sections 7.1 and 7.2).
    pub const PAPER: Self = Self {
        link_ns: 762,
        host_ns: 338,
        message_ns: 200,
        host_message_ns: 12,
        clock_ns: 600,
        beacon_ns: 3_000,
        detour_ns: 2_000,
    };

    /// The network that it makes with background flows on it: one queue for all, which overflows.
    /// It is marked from 65 packets on (DCTCP, SIGCOMM 2010, for 10 Gbit/s; more than the seventh
    /// of a round trip that it asks for here).
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

    /// The network that it makes: 100 Gbit/s everywhere.
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
