//! A limit for what must happen while the machine runs.

use std::time::{Duration, Instant};

/// A longer time between two looks is that of a machine that did not run its programs.
const STEP_MAX: Duration = Duration::from_millis(250);

/// Measures time without that in which this program did not run: the fabric on the same machine did
/// not run then either, and had no chance to do what is waited for.
pub struct Stopwatch {
    last: Instant,
    elapsed: Duration,
}

impl Stopwatch {
    pub fn start() -> Self {
        Self { last: Instant::now(), elapsed: Duration::ZERO }
    }

    /// Returns the time since the start. Must be called in every turn.
    pub fn elapsed(&mut self) -> Duration {
        let now = Instant::now();
        self.elapsed += now.duration_since(self.last).min(STEP_MAX);
        self.last = now;
        self.elapsed
    }
}
