//! The clocks that a driver reads.

use onepipe_base::{Mono, Now, Timestamp};

use crate::Calibration;

/// A source of time. A driver reads it once per batch (driver rule D1).
pub trait Clock {
    /// Reads both clocks at one moment. No later load or store of this thread is performed before
    /// that moment, and no earlier load after it (nor an earlier store, given a full fence
    /// between).
    fn read(&mut self) -> Now;
}

/// The clocks of this machine.
///
/// With a calibration, measured or adopted, `sync` is `CLOCK_REALTIME` at the origin of the
/// calibration plus the time elapsed since. It never steps, and all clocks with the same
/// calibration agree on it, which suits the processes of one machine. Processes on *different*
/// machines, or with calibrations of their own, drift apart by the error of the measurement (some
/// ppm) and must use [`SystemClock::following_system`].
#[derive(Clone, Debug)]
pub struct SystemClock {
    calibration: Calibration,
    /// Added to the elapsed time to give `sync`.
    sync_offset_ns: u64,
    /// Injected error of `sync`, for tests.
    skew_ns: u64,
    /// The elapsed time at which to read the system's clock again; `u64::MAX` for never.
    follow_at_ns: u64,
    follow_interval_ns: u64,
}

impl SystemClock {
    /// Makes a clock with a calibration of its own, measured now (about 10 ms).
    pub fn calibrated() -> Self {
        Self::with_calibration(Calibration::measure())
    }

    /// Makes a clock that agrees with all others of the same calibration.
    pub fn with_calibration(calibration: Calibration) -> Self {
        Self {
            calibration,
            sync_offset_ns: calibration.origin_sync_ns(),
            skew_ns: 0,
            follow_at_ns: u64::MAX,
            follow_interval_ns: 0,
        }
    }

    /// Makes `sync` follow `CLOCK_REALTIME`: realigns it every `interval_ns`, so that all machines
    /// with synchronised system clocks (NTP, PTP, or the same machine) stay together. `mono` is not
    /// changed. The steps are small and go either way; machines smooth them
    /// ([`onepipe_base::Slew`]).
    #[must_use]
    pub fn following_system(mut self, interval_ns: u64) -> Self {
        self.follow_interval_ns = interval_ns;
        self.follow_at_ns = 0;
        self
    }

    /// The conversion from ticks to nanoseconds.
    pub fn calibration(&self) -> Calibration {
        self.calibration
    }

    /// Adds `delta_ns` to the error of `sync`: fault injection for tests.
    pub fn step_sync(&mut self, delta_ns: i64) {
        self.skew_ns = self.skew_ns.wrapping_add_signed(delta_ns);
    }

    #[cold]
    fn follow(&mut self, elapsed_ns: u64) {
        self.sync_offset_ns = self.calibration.realtime_offset_ns();
        self.follow_at_ns = elapsed_ns.saturating_add(self.follow_interval_ns);
    }
}

impl Clock for SystemClock {
    #[inline]
    fn read(&mut self) -> Now {
        let elapsed_ns = self.calibration.elapsed_ns(self.calibration.source().ticks());
        if elapsed_ns >= self.follow_at_ns {
            self.follow(elapsed_ns);
        }
        let sync_ns = elapsed_ns.wrapping_add(self.sync_offset_ns).wrapping_add(self.skew_ns);
        Now { mono: Mono::from_ns(elapsed_ns), sync: Timestamp::from_ns(sync_ns) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Source;
    use crate::ticks::system_ns;

    #[test]
    fn time_never_goes_back_between_two_threads() {
        use std::sync::atomic::{AtomicU64, Ordering};
        const PASSES: u64 = 20_000;
        let calibration = Calibration::measure();
        // The word holds the latest time read; its lowest bit says whose turn it is.
        let word = AtomicU64::new(0);
        const FAILED: u64 = u64::MAX;
        let side = |mine: u64| {
            let mut clock = SystemClock::with_calibration(calibration);
            for _ in 0..PASSES {
                let seen = loop {
                    match word.load(Ordering::Acquire) {
                        FAILED => return,
                        seen if seen & 1 == mine => break seen >> 1,
                        _ => std::thread::yield_now(),
                    }
                };
                let now = clock.read().mono.as_ns();
                let next = if now >= seen { now << 1 | (1 - mine) } else { FAILED };
                word.store(next, Ordering::Release);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| side(0));
            scope.spawn(|| side(1));
        });
        assert_ne!(word.into_inner(), FAILED, "a core read less than another had read before");
    }

    #[test]
    fn sync_keeps_its_offset_from_mono_unless_stepped() {
        let mut clock = SystemClock::calibrated();
        let offset = |now: Now| now.sync.as_ns() - now.mono.as_ns();
        let (first, later) = (clock.read(), clock.read());
        assert_eq!(offset(first), offset(later));
        clock.step_sync(-1_000_000);
        assert_eq!(offset(clock.read()), offset(first) - 1_000_000);
    }

    #[test]
    fn following_clock_returns_to_the_system_clock() {
        // A calibration that is wrong by a day.
        let mut words = Calibration::measure_source(Source::System).to_words();
        words[3] += 86_400_000_000_000;
        let wrong = Calibration::from_words(words).expect("a later origin is valid");
        let ahead = SystemClock::with_calibration(wrong).read().sync.as_ns();
        assert!(ahead > system_ns(libc::CLOCK_REALTIME) + 86_000_000_000_000);

        let before = system_ns(libc::CLOCK_REALTIME);
        let seen =
            SystemClock::with_calibration(wrong).following_system(1_000_000).read().sync.as_ns();
        let after = system_ns(libc::CLOCK_REALTIME);
        // The two reads are matched to within the width of one attempt.
        assert!((before..=after + 1_000_000).contains(&seen), "{before} {seen} {after}");
    }
}
