//! Round-trip time estimation and the retransmission timeout (RFC 6298).

/// Maximum retransmission timeout, ns.
const TIMEOUT_NS_MAX: u64 = 1_000_000_000;

/// Smoothed round-trip time and its deviation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RttEstimator {
    timeout_ns_min: u64,
    smoothed_ns: Option<u64>,
    deviation_ns: u64,
    /// Exponential backoff: number of doublings since the last sample.
    doublings: u32,
}

impl RttEstimator {
    pub fn new(timeout_ns_min: u64) -> Self {
        Self { timeout_ns_min, smoothed_ns: None, deviation_ns: 0, doublings: 0 }
    }

    /// Adds a sample.
    pub fn on_sample(&mut self, ns: u64) {
        self.doublings = 0;
        match &mut self.smoothed_ns {
            None => {
                self.smoothed_ns = Some(ns);
                self.deviation_ns = ns / 2;
            }
            Some(smoothed_ns) => {
                self.deviation_ns = (3 * self.deviation_ns + smoothed_ns.abs_diff(ns)) / 4;
                *smoothed_ns = (7 * *smoothed_ns + ns) / 8;
            }
        }
    }

    /// Doubles the timeout.
    pub fn on_timeout(&mut self) {
        self.doublings = (self.doublings + 1).min(16);
    }

    /// Returns the retransmission timeout, ns.
    pub fn timeout_ns(&self) -> u64 {
        let smoothed_ns = self.smoothed_ns.unwrap_or(0);
        let timeout_ns = (smoothed_ns + 4 * self.deviation_ns).max(self.timeout_ns_min);
        (timeout_ns << self.doublings).min(TIMEOUT_NS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rto_follows_rtt_and_doubles_until_the_next_sample() {
        let mut rtt = RttEstimator::new(1_000);
        assert_eq!(rtt.timeout_ns(), 1_000);
        rtt.on_sample(8_000);
        assert_eq!(rtt.timeout_ns(), 8_000 + 4 * 4_000);
        (0..100).for_each(|_| rtt.on_sample(8_000));
        assert_eq!(rtt.timeout_ns(), 8_000, "steady ones leave no deviation");
        rtt.on_timeout();
        rtt.on_timeout();
        assert_eq!(rtt.timeout_ns(), 32_000);
        rtt.on_sample(8_000);
        assert_eq!(rtt.timeout_ns(), 8_000);
    }
}
