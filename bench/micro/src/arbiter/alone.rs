//! What a machine lets threads have of its cores that have nothing to do but to look at the clock:
//! who gives out timeslots there cannot be in time more often than they.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use hdrhistogram::Histogram;
use onepipe_transport_clock::stay_on;

use crate::Detail;

/// Less than this between two looks at the clock is not being away.
const AWAY: Duration = Duration::from_micros(5);

/// How long such threads were away from the clock each time, on all cores, ns.
pub(super) struct Away {
    times: Histogram<u64>,
    /// Time that they were there for, and time that they were away.
    all: Duration,
    away: Duration,
}

impl Away {
    pub fn new() -> Result<Self> {
        let times = Histogram::new_with_bounds(1, 10_000_000_000, 3)?;
        Ok(Self { times, all: Duration::ZERO, away: Duration::ZERO })
    }

    pub fn add(&mut self, other: &Self) -> Result<()> {
        self.all += other.all;
        self.away += other.away;
        Ok(self.times.add(&other.times)?)
    }

    fn longer_than(&self, ns: u64) -> f64 {
        let longer = self.times.iter_recorded().filter(|time| time.value_iterated_to() > ns);
        longer.map(|time| time.count_at_value()).sum::<u64>() as f64
    }

    /// With how often that took longer than `lead_ns` and than half of that.
    pub fn details(&self, lead_ns: u64) -> [Detail; 4] {
        let part = self.away.as_secs_f64() / self.all.as_secs_f64().max(f64::MIN_POSITIVE);
        [
            ("cores alone, away", part, "of the time"),
            ("away longer than half a lead", self.longer_than(lead_ns / 2), "times"),
            ("away longer than a lead", self.longer_than(lead_ns), "times"),
            ("away at most", self.times.max() as f64 / 1e3, "us"),
        ]
        .map(|(name, value, unit)| Detail {
            name: name.to_string(),
            value,
            unit: unit.to_string(),
        })
    }

    fn watch(core: usize, length: Duration) -> Result<Self> {
        stay_on(core)?;
        let mut own = Self::new()?;
        let begin = Instant::now();
        let mut last = begin;
        while last - begin < length {
            let now = Instant::now();
            if now - last >= AWAY {
                own.away += now - last;
                own.times.saturating_record((now - last).as_nanos() as u64);
            }
            last = now;
        }
        own.all = last - begin;
        Ok(own)
    }
}

/// Has a thread look at the clock on each of `cores` for so many seconds.
pub(super) fn run(cores: &[usize], seconds: f64) -> Result<Away> {
    let length = Duration::from_secs_f64(seconds);
    std::thread::scope(|scope| {
        let watches: Vec<_> =
            cores.iter().map(|&core| scope.spawn(move || Away::watch(core, length))).collect();
        let mut all = Away::new()?;
        for watch in watches {
            all.add(&watch.join().map_err(|_| anyhow!("a thread has panicked"))??)?;
        }
        Ok(all)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_away_are_told_by_how_long_they_took() {
        let core = onepipe_transport_clock::cores().expect("the kernel says")[0];
        let mut away = run(&[core], 0.02).expect("there is such a core");
        assert!(away.all >= Duration::from_millis(20));
        let before = away.longer_than(65_000);
        for ns in [20_000, 40_000, 80_000, 15_000_000_000] {
            away.times.saturating_record(ns);
        }
        assert_eq!(away.longer_than(65_000) - before, 2.0);
        let [part, half, whole, most] = away.details(65_000).map(|detail| detail.value);
        assert!((0.0..=1.0).contains(&part) && half - whole >= 1.0 && most > 9e6);
    }
}
