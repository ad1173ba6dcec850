//! Round-trip time estimation (RFC 6298).

/// Smoothed round-trip time and its mean deviation, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RttEstimator {
    /// SRTT; 0 before the first sample.
    smoothed_ns: u64,
    /// RTTVAR of RFC 6298, ns.
    deviation_ns: u64,
}

impl RttEstimator {
    pub fn new() -> Self {
        Self { smoothed_ns: 0, deviation_ns: 0 }
    }

    /// Adds a sample (RFC 6298, section 2, with alpha = 1/8 and beta = 1/4).
    pub fn on_sample(&mut self, sample_ns: u64) {
        if self.smoothed_ns == 0 {
            self.smoothed_ns = sample_ns;
            self.deviation_ns = sample_ns / 2;
            return;
        }
        let deviation_ns = self.smoothed_ns.abs_diff(sample_ns);
        self.deviation_ns = self.deviation_ns - self.deviation_ns / 4 + deviation_ns / 4;
        self.smoothed_ns = self.smoothed_ns - self.smoothed_ns / 8 + sample_ns / 8;
    }

    /// Returns the smoothed round-trip time in ns; 0 before the first sample.
    #[inline]
    pub fn smoothed_ns(&self) -> u64 {
        self.smoothed_ns
    }

    /// Returns SRTT + 4 RTTVAR in ns.
    pub fn rto_ns(&self) -> u64 {
        self.smoothed_ns + 4 * self.deviation_ns
    }
}
