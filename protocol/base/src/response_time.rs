//! How long a request usually takes to be met, and from when on it counts as lost.

/// Estimates a response time by RFC 6298: a smoothed mean, and four times the smoothed deviation.
///
/// A request that is repeated sooner is repeated for nothing: on a machine whose processes wait for
/// a core, an answer takes many times the interval at which a dedicated link is asked again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ResponseTime {
    /// Eight times the mean, in ns: RFC 6298 weighs a sample by 1/8.
    mean_times_8: u64,
    /// Four times the deviation, in ns: weighed by 1/4.
    deviation_times_4: u64,
}

impl ResponseTime {
    /// Longest sample, in ns: a second is no response time, but a process that was stopped.
    const SAMPLE_NS_MAX: u64 = 1_000_000_000;

    /// Adds a sample in ns.
    pub fn on_sample(&mut self, sample_ns: u64) {
        let sample_ns = sample_ns.min(Self::SAMPLE_NS_MAX);
        if self.mean_times_8 == 0 {
            (self.mean_times_8, self.deviation_times_4) = (8 * sample_ns, 2 * sample_ns);
            return;
        }
        let mean_ns = self.mean_times_8 / 8;
        self.deviation_times_4 =
            self.deviation_times_4 - self.deviation_times_4 / 4 + mean_ns.abs_diff(sample_ns);
        self.mean_times_8 = self.mean_times_8 - mean_ns + sample_ns;
    }

    /// Returns the time after which a request was probably lost, in ns; 0 before any sample.
    #[inline]
    #[must_use]
    pub fn timeout_ns(&self) -> u64 {
        self.mean_times_8 / 8 + self.deviation_times_4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constant_samples_leave_no_margin_and_a_jump_restores_it() {
        let mut response = ResponseTime::default();
        assert_eq!(response.timeout_ns(), 0);
        response.on_sample(1_000);
        assert_eq!(response.timeout_ns(), 3_000, "RFC 6298: R + 4 * R / 2");
        (0..100).for_each(|_| response.on_sample(1_000));
        assert!((1_000..1_020).contains(&response.timeout_ns()), "{response:?}");
        response.on_sample(5_000);
        assert!(response.timeout_ns() > 5_000, "{response:?}");
    }

    #[test]
    fn follows_what_it_measures() {
        let mut response = ResponseTime::default();
        (0..50).for_each(|_| response.on_sample(100_000));
        (0..50).for_each(|_| response.on_sample(10_000));
        assert!((10_000..12_000).contains(&response.timeout_ns()), "{response:?}");
        // A process that was stopped, and extreme values.
        response.on_sample(u64::MAX);
        assert!(response.timeout_ns() < 2 * ResponseTime::SAMPLE_NS_MAX);
        (0..100).for_each(|_| response.on_sample(0));
        assert!(response.timeout_ns() < 10_000, "{response:?}");
    }
}
