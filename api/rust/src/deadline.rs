//! Deadlines of waits.

use std::time::{Duration, Instant};

/// Longest single wait: a caller without a deadline checks again after it.
const WAIT_MAX: Duration = Duration::from_secs(3_600);

/// The end of a wait, or none if it is beyond the range of the clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// Makes a deadline `timeout` from now.
    pub(crate) fn after(timeout: Duration) -> Self {
        Self(Instant::now().checked_add(timeout))
    }

    /// Returns how long to wait now; `None` when the deadline has passed.
    pub(crate) fn remaining(self) -> Option<Duration> {
        let Some(at) = self.0 else { return Some(WAIT_MAX) };
        let remaining =
            at.checked_duration_since(Instant::now()).filter(|remaining| !remaining.is_zero());
        remaining.map(|remaining| remaining.min(WAIT_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadline_expires_and_may_be_unbounded() {
        assert_eq!(Deadline::after(Duration::ZERO).remaining(), None);
        let remaining = Deadline::after(Duration::from_secs(60)).remaining();
        assert!(remaining.is_some_and(|remaining| remaining > Duration::from_secs(50)));
        assert_eq!(Deadline::after(Duration::MAX).remaining(), Some(WAIT_MAX));
    }
}
