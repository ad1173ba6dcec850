//! How long a request usually takes to be met, and from when on it counts as lost.

/// Estimates a response time by RFC 6298: a smoothed mean, and four times the smoothed deviation.
///
/// A request that is repeated sooner is repeated for nothing: on a machine whose processes wait for
/// a core, an answer takes many times the interval at which a dedicated link is asked again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ResponseTime {
    /// Eight times the mean, in ns: RFC 6298 weighs a sample by 1/8.
    mean_times_8: u64,
    /// Four times the deviation, in ns: weighed by 1/4.
    deviation_times_4: u64,
    /// Eight times the mean of all samples, with those of repeated requests.
    overall_times_8: u64,
}

impl ResponseTime {
    /// Longest sample, in ns: a second is no response time, but a process that was stopped.
    const SAMPLE_NS_MAX: u64 = 1_000_000_000;

    /// Adds a sample in ns of a request that was met before it was repeated.
    pub fn on_sample(&mut self, sample_ns: u64) {
        let sample_ns = sample_ns.min(Self::SAMPLE_NS_MAX);
        add(&mut self.overall_times_8, sample_ns);
        if self.mean_times_8 == 0 {
            (self.mean_times_8, self.deviation_times_4) = (8 * sample_ns, 2 * sample_ns);
            return;
        }
        let mean_ns = self.mean_times_8 / 8;
        self.deviation_times_4 =
            self.deviation_times_4 - self.deviation_times_4 / 4 + mean_ns.abs_diff(sample_ns);
        add(&mut self.mean_times_8, sample_ns);
    }

    /// Adds a sample in ns of a request that was repeated after `timeout_ns`, at most twice that.
    /// Which of its copies was met is not known, so that Karn's algorithm discards such samples.
    /// Here their mean is a lower bound of the timeout: one that is too short grows until half of
    /// all requests are met before it, and requests that were lost do little.
    pub fn on_repeated_sample(&mut self, sample_ns: u64, timeout_ns: u64) {
        let sample_ns = sample_ns.min(timeout_ns.saturating_mul(2)).min(Self::SAMPLE_NS_MAX);
        add(&mut self.overall_times_8, sample_ns);
    }

    /// Returns the mean in ns; 0 before any sample.
    #[inline]
    #[must_use]
    pub fn mean_ns(&self) -> u64 {
        match self.mean_times_8 {
            0 => self.overall_times_8 / 8,
            mean_times_8 => mean_times_8 / 8,
        }
    }

    /// Returns the time after which a request was probably lost, in ns; 0 before any sample.
    #[inline]
    #[must_use]
    pub fn timeout_ns(&self) -> u64 {
        (self.mean_times_8 / 8 + self.deviation_times_4).max(self.overall_times_8 / 8)
    }
}

/// Adds a sample to eight times a smoothed mean.
fn add(mean_times_8: &mut u64, sample_ns: u64) {
    *mean_times_8 = match *mean_times_8 {
        0 => 8 * sample_ns,
        mean => mean - mean / 8 + sample_ns,
    };
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

    /// The estimates after each sample, as RFC 6298 has them: the deviation is weighed by 1/4 and
    /// the mean by 1/8.
    #[test]
    fn each_sample_moves_mean_and_deviation_by_their_weights() {
        let mut response = ResponseTime::default();
        for (sample_ns, mean_ns, deviation_ns) in [
            (800, 800, 400),
            // 400 * 3/4 + 800/4, and 800 * 7/8 + 1_600/8.
            (1_600, 900, 500),
            (900, 900, 375),
            (100, 800, 481),
            (8_000, 1_700, 2_161),
        ] {
            response.on_sample(sample_ns);
            let deviation_times_4 = response.timeout_ns() - response.mean_ns();
            assert_eq!(response.mean_ns(), mean_ns, "after {sample_ns}");
            assert_eq!(deviation_times_4 / 4, deviation_ns, "after {sample_ns}");
        }
    }

    #[test]
    fn repeated_requests_count_up_to_twice_their_timeout() {
        let mut response = ResponseTime::default();
        response.on_repeated_sample(5_000, 1_000);
        assert_eq!((response.mean_ns(), response.timeout_ns()), (2_000, 2_000));
        response.on_repeated_sample(1_200, 1_000);
        assert_eq!((response.mean_ns(), response.timeout_ns()), (1_900, 1_900));
        // A request that was met at once has a mean of its own; the other one remains the bound.
        response.on_sample(100);
        assert_eq!((response.mean_ns(), response.timeout_ns()), (100, 1_675));
        response.on_repeated_sample(u64::MAX, u64::MAX);
        let second = ResponseTime::SAMPLE_NS_MAX;
        assert_eq!(response.timeout_ns(), (8 * 1_675 - 1_675 + second) / 8);
    }

    #[test]
    fn samples_are_bounded_by_a_second() {
        let second = ResponseTime::SAMPLE_NS_MAX;
        for (sample_ns, mean_ns) in [(second - 1, second - 1), (second, second), (u64::MAX, second)]
        {
            let mut response = ResponseTime::default();
            response.on_sample(sample_ns);
            assert_eq!((response.mean_ns(), response.timeout_ns()), (mean_ns, 3 * mean_ns));
        }
    }

    #[test]
    fn timeout_reaches_what_requests_take_and_bears_lost_ones() {
        let sample = |response: &mut ResponseTime, sample_ns: u64| {
            let timeout_ns = response.timeout_ns();
            if timeout_ns > 0 && sample_ns > timeout_ns {
                response.on_repeated_sample(sample_ns, timeout_ns);
            } else {
                response.on_sample(sample_ns);
            }
        };
        let mut response = ResponseTime::default();
        (0..50).for_each(|_| sample(&mut response, 1_000));
        (0..100).for_each(|_| sample(&mut response, 50_000));
        assert!((49_000..80_000).contains(&response.timeout_ns()), "{response:?}");
        // Every fifth request is lost, and met after its repetition.
        let mut response = ResponseTime::default();
        for index in 0..500 {
            let timeout_ns = response.timeout_ns();
            sample(&mut response, if index % 5 == 1 { timeout_ns + 1_000 } else { 1_000 });
        }
        assert!(response.timeout_ns() < 3_000, "{response:?}");
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
