//! Scheduling jitter of the machine: how long threads that only read the clock are descheduled. It
//! bounds how often an arbiter on the same cores can meet its deadlines.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use hdrhistogram::Histogram;
use onepipe_transport_clock::pin_to_core;

use crate::Detail;

/// Minimum gap between two clock reads that counts as a stall.
const STALL_MIN: Duration = Duration::from_micros(5);

/// Stalls of threads that only read the clock, on all cores, in ns.
pub(super) struct Jitter {
    times: Histogram<u64>,
    /// Total measured time, and the part of it in stalls.
    all: Duration,
    stalled: Duration,
}

impl Jitter {
    pub fn new() -> Result<Self> {
        let times = Histogram::new_with_bounds(1, 10_000_000_000, 3)?;
        Ok(Self { times, all: Duration::ZERO, stalled: Duration::ZERO })
    }

    pub fn add(&mut self, other: &Self) -> Result<()> {
        self.all += other.all;
        self.stalled += other.stalled;
        Ok(self.times.add(&other.times)?)
    }

    fn longer_than(&self, ns: u64) -> f64 {
        let longer = self.times.iter_recorded().filter(|time| time.value_iterated_to() > ns);
        longer.map(|time| time.count_at_value()).sum::<u64>() as f64
    }

    /// Returns details, including the number of stalls longer than `lead_ns` and than half of that.
    pub fn details(&self, lead_ns: u64) -> [Detail; 4] {
        let part = self.stalled.as_secs_f64() / self.all.as_secs_f64().max(f64::MIN_POSITIVE);
        [
            ("cores idle, stalled", part, "of the time"),
            ("stalls longer than half a lead", self.longer_than(lead_ns / 2), "times"),
            ("stalls longer than a lead", self.longer_than(lead_ns), "times"),
            ("longest stall", self.times.max() as f64 / 1e3, "us"),
        ]
        .map(|(name, value, unit)| Detail {
            name: name.to_string(),
            value,
            unit: unit.to_string(),
        })
    }

    fn measure_core(core: usize, length: Duration) -> Result<Self> {
        pin_to_core(core)?;
        let mut own = Self::new()?;
        let begin = Instant::now();
        let mut last = begin;
        while last - begin < length {
            let now = Instant::now();
            if now - last >= STALL_MIN {
                own.stalled += now - last;
                own.times.saturating_record((now - last).as_nanos() as u64);
            }
            last = now;
        }
        own.all = last - begin;
        Ok(own)
    }
}

/// Measures the jitter of each of `cores` for a time.
pub(super) fn run(cores: &[usize], seconds: f64) -> Result<Jitter> {
    let length = Duration::from_secs_f64(seconds);
    std::thread::scope(|scope| {
        let threads: Vec<_> = cores
            .iter()
            .map(|&core| scope.spawn(move || Jitter::measure_core(core, length)))
            .collect();
        let mut all = Jitter::new()?;
        for thread in threads {
            all.add(&thread.join().map_err(|_| anyhow!("a thread panicked"))??)?;
        }
        Ok(all)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_stalls_longer_than_threshold() {
        let core = onepipe_transport_clock::cores().expect("list of cores")[0];
        let mut jitter = run(&[core], 0.02).expect("core exists");
        assert!(jitter.all >= Duration::from_millis(20));
        let before = jitter.longer_than(65_000);
        for ns in [20_000, 40_000, 80_000, 15_000_000_000] {
            jitter.times.saturating_record(ns);
        }
        assert_eq!(jitter.longer_than(65_000) - before, 2.0);
        let [part, half, whole, most] = jitter.details(65_000).map(|detail| detail.value);
        assert!((0.0..=1.0).contains(&part) && half - whole >= 1.0 && most > 9e6);
    }
}
