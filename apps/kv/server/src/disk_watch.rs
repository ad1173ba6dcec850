//! Whether the disk of a replica takes what is appended to its log.

use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time without progress after which writes are refused.
const STALL: Duration = Duration::from_secs(1);

/// Watches a log. Its owner calls [`DiskWatch::observe`] about ten times a second.
#[derive(Debug)]
pub(crate) struct DiskWatch {
    /// Number of the last record that was acknowledged, and since when.
    acknowledged: (u64, Instant),
    stalled: Option<Arc<str>>,
}

impl DiskWatch {
    pub fn new(now: Instant) -> Self {
        Self { acknowledged: (0, now), stalled: None }
    }

    /// Notes how far the log is at `now`: its last record, the last acknowledged one, and the
    /// failure of the disk, if it reports one. Returns why writes are to be refused, if they are.
    pub fn observe(
        &mut self,
        now: Instant,
        (appended, acknowledged): (u64, u64),
        failure: Option<String>,
    ) -> Option<Arc<str>> {
        if acknowledged == appended || acknowledged > self.acknowledged.0 {
            self.acknowledged = (acknowledged, now);
        }
        let is_stalled = now.saturating_duration_since(self.acknowledged.1) >= STALL;
        if !is_stalled {
            if self.stalled.take().is_some() {
                tracing::info!("the disk takes what is written again: writes are executed");
            }
            return None;
        }
        let reason = failure.unwrap_or_else(|| "the disk does not answer".into());
        if self.stalled.as_deref() != Some(&*reason) {
            tracing::error!("replies wait for the disk, and writes are refused: {reason}");
            self.stalled = Some(reason.into());
        }
        self.stalled.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_after_a_second_without_progress() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut watch = DiskWatch::new(start);
        let full = || Some("full".to_owned());
        assert_eq!(watch.observe(at(900), (0, 0), None), None);
        assert_eq!(watch.observe(at(1_800), (3, 0), full()), None);
        // A record more is progress.
        assert_eq!(watch.observe(at(1_850), (3, 1), full()), None);
        assert_eq!(watch.observe(at(2_849), (3, 1), full()), None);
        assert_eq!(watch.observe(at(2_850), (3, 1), full()).as_deref(), Some("full"));
        assert_eq!(
            watch.observe(at(2_900), (3, 1), None).as_deref(),
            Some("the disk does not answer")
        );
        assert_eq!(watch.observe(at(3_000), (3, 2), full()), None);
        assert_eq!(watch.observe(at(3_100), (3, 3), None), None);
        // With nothing to be written there is nothing to wait for.
        assert_eq!(watch.observe(at(9_000), (3, 3), None), None);
    }
}
