//! Counters of an endpoint of scheduled transfer.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use onepipe::{ClientStats, TransferStats};

/// Interval of counter snapshots.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// Number of snapshots kept: an arbiter that has not replied for two seconds is down.
const SAMPLES: usize = 3;

/// Snapshot of all counters.
#[derive(Clone, Copy, Debug)]
pub struct Counters {
    pub at: Instant,
    /// Time for which the endpoint has run, without the times in which it could not.
    pub running: Duration,
    pub endpoint: ClientStats,
    pub transfer: TransferStats,
}

/// Counter snapshots of the last seconds.
#[derive(Debug, Default)]
pub struct RecentCounters(VecDeque<Counters>);

impl RecentCounters {
    /// Returns whether a snapshot is due.
    pub fn is_due(&self, running: Duration) -> bool {
        self.0.back().is_none_or(|last| running - last.running >= SAMPLE_INTERVAL)
    }

    pub fn record(&mut self, counters: Counters) {
        self.0.push_back(counters);
        if self.0.len() > SAMPLES {
            self.0.pop_front();
        }
    }

    /// Returns the snapshot of two to three seconds ago, or `then` if that is more recent.
    pub fn after(&self, then: &Counters) -> Counters {
        let oldest = self.0.front().filter(|oldest| oldest.running > then.running);
        *oldest.unwrap_or(then)
    }
}
