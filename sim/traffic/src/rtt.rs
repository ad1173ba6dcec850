//! How long an acknowledgement takes, and how long to wait for one (RFC 6298).

/// Round trips are looked up no longer than this, in ns: after it a timeout does not grow.
const TIMEOUT_NS_MAX: u64 = 1_000_000_000;

/// Smoothed, with its deviation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RttEstimator {
    timeout_ns_min: u64,
    smoothed_ns: Option<u64>,
    deviation_ns: u64,
    /// How often the timeout has doubled since something was acknowledged.
    doublings: u32,
}

impl RttEstimator {
    pub fn new(timeout_ns_min: u64) -> Self {
        Self { timeout_ns_min, smoothed_ns: None, deviation_ns: 0, doublings: 0 }
    }

    /// One more was seen.
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

    /// Nothing was heard for as long as that.
    pub fn on_timeout(&mut self) {
        self.doublings = (self.doublings + 1).min(16);
    }

    /// How long to wait, in ns.
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
