//! The time that the cores of the machine are busy, whatever keeps them so: processes or the
//! kernel.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// The idle time of all cores together at one moment.
#[derive(Debug)]
pub(crate) struct MachineCpu {
    at: Instant,
    idle_s: f64,
}

impl MachineCpu {
    /// Reads the idle time.
    pub(crate) fn now() -> Result<Self> {
        let uptime = std::fs::read_to_string("/proc/uptime").context("reading /proc/uptime")?;
        let idle_s = idle_s(&uptime).context("/proc/uptime has no idle time")?;
        Ok(Self { at: Instant::now(), idle_s })
    }

    /// Returns the time that the cores were busy since `before`, all together, within 10 ms.
    pub(crate) fn busy_since(&self, before: &Self) -> Duration {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
        let all_s = self.at.duration_since(before.at).as_secs_f64() * cores as f64;
        Duration::from_secs_f64((all_s - (self.idle_s - before.idle_s)).max(0.0))
    }
}

/// Parses the second number of `/proc/uptime`: the idle time of all cores together, in s.
pub(crate) fn idle_s(uptime: &str) -> Option<f64> {
    uptime.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_a_busy_core() {
        let before = MachineCpu::now().expect("Linux has it");
        while before.at.elapsed() < Duration::from_millis(200) {
            std::hint::spin_loop();
        }
        let busy = MachineCpu::now().expect("Linux has it").busy_since(&before);
        assert!(busy > Duration::from_millis(100), "{busy:?}");
        assert_eq!(idle_s("783.25 1201.50\n"), Some(1201.5));
        assert_eq!(idle_s(""), None);
    }
}
