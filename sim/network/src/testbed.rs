//! The testbed of 1Pipe: delays, clocks and beacons, with the sources of the numbers.

use crate::{ClockConfig, ClockTail, Config, LinkConfig};

/// Delays and clocks of a testbed. Times in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Testbed {
    /// Delay of a link, including the switch at its end.
    pub link_ns: u64,
    /// Delay that a host adds on transmission and on reception: processor, bus and NIC.
    pub host_ns: u64,
    /// Range of the offsets of most clocks: plus or minus this.
    pub clock_ns: u64,
    /// The other clocks.
    pub clock_tail: ClockTail,
    /// Beacon interval.
    pub beacon_ns: u64,
}

impl Testbed {
    /// The testbed of 1Pipe's evaluation, for all of its figures.
    ///
    /// - The delays of links and hosts are not in the text. They follow from the latency of
    ///   unordered messages on an idle network (figure 9a, "unorder"): 2.2 us over one switch, thus
    ///   two links and two hosts, and 5.25 us over five switches, thus six links and two hosts.
    ///   This gives 0.76 us per link and 0.34 us per host.
    /// - Clocks are off by 0.3 us on average and by 1.0 us at the 95th percentile (section 7.1).
    ///   The text gives no more of the distribution. Here three of four offsets are uniform in
    ///   +-0.383 us and the fourth in +-1.25 us, which has both values.
    /// - Beacons are sent every 3 us (section 7.1).
    pub const PAPER: Self = Self {
        link_ns: 762,
        host_ns: 338,
        clock_ns: 383,
        clock_tail: ClockTail { permille: 250, offset_ns_max: 1_250 },
        beacon_ns: 3_000,
    };

    /// Returns the network: 100 Gbit/s everywhere, and queues that hold what pause frames would
    /// hold back (RoCE, section 7.1).
    pub fn network(&self) -> Config {
        let queue_bytes_max = 64 << 20;
        let propagation_ns = self.link_ns;
        let link = LinkConfig { propagation_ns, queue_bytes_max, ..LinkConfig::default() };
        let propagation_ns = self.link_ns + self.host_ns;
        Config {
            host_link: LinkConfig { propagation_ns, ..link },
            switch_link: link,
            clocks: ClockConfig { offset_ns_max: self.clock_ns, drift_ppb_max: 0 },
            clock_tail: Some(self.clock_tail),
            ..Config::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use onepipe_sim_engine::Random;

    use super::*;

    #[test]
    fn clock_errors_have_the_mean_and_percentile_of_the_text() {
        let Testbed { clock_ns, clock_tail, .. } = Testbed::PAPER;
        let mut random = Random::named(1, "clock errors", 0);
        let mut errors: Vec<u64> = (0..100_000)
            .map(|_| {
                let is_tail = random.below(1_000) < u64::from(clock_tail.permille);
                let max = if is_tail { clock_tail.offset_ns_max } else { clock_ns };
                random.between(0, 2 * max).abs_diff(max)
            })
            .collect();
        errors.sort_unstable();
        let mean = errors.iter().sum::<u64>() / errors.len() as u64;
        assert!((295..=305).contains(&mean), "{mean} ns on average");
        let percentile = errors[errors.len() * 95 / 100];
        assert!((980..=1_020).contains(&percentile), "{percentile} ns at the 95th percentile");
    }
}
