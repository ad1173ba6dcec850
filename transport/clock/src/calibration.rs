//! Conversion of ticks to nanoseconds by a value that processes can share.

use std::time::Duration;

use crate::Source;
use crate::ticks::system_ns;

/// Binary places of [`Calibration::period`]: its unit, 2^-32 ns, is 0.6 ppb of a tick at 2.6 GHz.
const SHIFT: u32 = 32;
/// Duration of the measurement of the counter's rate. Either end is exact to about 30 ns, so the
/// rate is exact to about 5 ppm.
const MEASURE_TIME: Duration = Duration::from_millis(10);
/// Attempts to read both clocks without an interruption between the reads.
const ATTEMPTS: u32 = 16;

/// The conversion of ticks to nanoseconds, measured once per machine.
///
/// Processes that share it (the shared-memory transport stores it in its segment) agree exactly on
/// the time of a tick, whatever the error of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Calibration {
    source: Source,
    /// Nanoseconds per tick, times 2^32.
    period: u64,
    /// The tick count at the origin, where ticks and `CLOCK_REALTIME` were read together.
    origin_ticks: u64,
    /// `CLOCK_REALTIME` at the origin.
    origin_sync_ns: u64,
}

impl Calibration {
    /// Number of words of [`Calibration::to_words`].
    pub const WORDS: usize = 4;

    /// Measures this machine's best source. Takes about 10 ms.
    pub fn measure() -> Self {
        Self::measure_source(Source::detect())
    }

    /// Measures `source`. Returns at once for [`Source::System`], which needs no measurement.
    pub fn measure_source(source: Source) -> Self {
        let period = match source {
            Source::System => 1 << SHIFT,
            Source::Tsc => tsc_period(),
        };
        let (origin_ticks, origin_sync_ns) = read_both(source, libc::CLOCK_REALTIME);
        Self { source, period, origin_ticks, origin_sync_ns }
    }

    /// The source of the ticks.
    pub fn source(&self) -> Source {
        self.source
    }

    /// Nanoseconds from the origin to `ticks`; 0 for ticks before the origin.
    #[inline]
    pub fn elapsed_ns(&self, ticks: u64) -> u64 {
        let elapsed = u128::from(ticks.saturating_sub(self.origin_ticks));
        ((elapsed * u128::from(self.period)) >> SHIFT) as u64
    }

    /// The synchronised clock at the origin, in nanoseconds.
    #[inline]
    pub fn origin_sync_ns(&self) -> u64 {
        self.origin_sync_ns
    }

    /// Encodes the value as words, for shared memory.
    pub fn to_words(self) -> [u64; Self::WORDS] {
        let source = match self.source {
            Source::Tsc => 1,
            Source::System => 2,
        };
        [source, self.period, self.origin_ticks, self.origin_sync_ns]
    }

    /// Decodes the words of [`Calibration::to_words`]; `None` for any other words.
    pub fn from_words(words: [u64; Self::WORDS]) -> Option<Self> {
        let [source, period, origin_ticks, origin_sync_ns] = words;
        let source = match source {
            1 => Source::Tsc,
            2 => Source::System,
            _ => return None,
        };
        (period != 0).then_some(Self { source, period, origin_ticks, origin_sync_ns })
    }

    /// Returns `CLOCK_REALTIME` minus the time by this calibration, in ns and wrapping: the
    /// correction that aligns the two.
    pub(crate) fn realtime_offset_ns(&self) -> u64 {
        let (ticks, realtime_ns) = read_both(self.source, libc::CLOCK_REALTIME);
        realtime_ns.wrapping_sub(self.elapsed_ns(ticks))
    }
}

/// Measures the nanoseconds per tick of the time-stamp counter, times 2^32, against the raw clock,
/// which NTP does not adjust.
fn tsc_period() -> u64 {
    let (first_ticks, first_ns) = read_both(Source::Tsc, libc::CLOCK_MONOTONIC_RAW);
    std::thread::sleep(MEASURE_TIME);
    let (last_ticks, last_ns) = read_both(Source::Tsc, libc::CLOCK_MONOTONIC_RAW);
    let ticks = u128::from(last_ticks.wrapping_sub(first_ticks)).max(1);
    let period = (u128::from(last_ns - first_ns) << SHIFT) / ticks;
    (period as u64).max(1)
}

/// Reads a tick count and a system clock at the same moment: the narrowest of several attempts.
fn read_both(source: Source, clock: libc::clockid_t) -> (u64, u64) {
    let attempt = |_| {
        let before = source.ticks();
        let ns = system_ns(clock);
        let width = source.ticks().wrapping_sub(before);
        (width, before.wrapping_add(width / 2), ns)
    };
    let (_, ticks, ns) =
        (0..ATTEMPTS).map(attempt).min_by_key(|(width, ..)| *width).expect("more than one attempt");
    (ticks, ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calibration_round_trips_and_bad_words_are_rejected() {
        let measured = Calibration::measure();
        assert_eq!(Calibration::from_words(measured.to_words()), Some(measured));
        assert_eq!(Calibration::from_words([3, 1, 0, 0]), None);
        assert_eq!(Calibration::from_words([1, 0, 0, 0]), None);
    }

    #[test]
    fn a_tick_of_the_system_is_a_nanosecond() {
        let words = [2, 1 << SHIFT, 1_000, 0];
        let calibration = Calibration::from_words(words).expect("these words are valid");
        assert_eq!(calibration.elapsed_ns(1_700), 700);
        assert_eq!(calibration.elapsed_ns(900), 0, "ticks before the origin count as zero");
        // 584 years of nanoseconds do not overflow on the way.
        assert_eq!(calibration.elapsed_ns(u64::MAX), u64::MAX - 1_000);
    }
}
