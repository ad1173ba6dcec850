//! When a replica takes a snapshot, and when the snapshot may count.

use std::time::{Duration, Instant};

use onepipe::Timestamp;

use crate::shared::LogStats;

/// Time after which a snapshot that failed is tried again.
const RETRY: Duration = Duration::from_secs(30);

/// What a snapshot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    /// Number of its last record.
    pub number: u64,
    /// Timestamp of its last write.
    pub at: Timestamp,
    /// Its length.
    pub bytes: u64,
}

/// Decides about the snapshots of one replica, without input or output.
///
/// A snapshot is due when the log has grown by more than the interval, and by more than the last
/// snapshot: so at most as much is written again as the log has, and a start reads at most twice
/// the state. It is written at once, and counts when all replicas have stored what it replaces.
#[derive(Debug)]
pub(crate) struct Schedule {
    interval_bytes: u64,
    /// Length of the last snapshot that counts.
    snapshot_bytes: u64,
    /// Bytes of the records behind the last snapshot that counts.
    log_bytes: u64,
    /// Bytes of the records behind the image that is being stored.
    later_bytes: u64,
    phase: Phase,
    retry_at: Option<Instant>,
    /// Number of snapshots that have counted, and of those that have failed.
    installed: u64,
    failed: u64,
    is_failing: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    /// Another thread writes the image.
    Writing(Image),
    /// The image is on the disk, under its temporary name.
    Written(Image),
    /// The log has been asked to make it count.
    Installing(Image),
}

impl Schedule {
    /// Creates a schedule of snapshots each `interval_bytes` of a log that begins with a snapshot
    /// of `snapshot_bytes`, and holds `log_bytes` behind it.
    pub fn new(interval_bytes: u64, snapshot_bytes: u64, log_bytes: u64) -> Self {
        Self {
            interval_bytes,
            snapshot_bytes,
            log_bytes,
            later_bytes: 0,
            phase: Phase::Idle,
            retry_at: None,
            installed: 0,
            failed: 0,
            is_failing: false,
        }
    }

    /// Notes that a record of `bytes` was appended.
    pub fn on_appended(&mut self, bytes: u64) {
        self.log_bytes += bytes;
        self.later_bytes += bytes;
    }

    /// Returns whether an image is to be taken at `now`.
    pub fn is_due(&self, now: Instant) -> bool {
        self.phase == Phase::Idle
            && self.log_bytes > self.interval_bytes.max(self.snapshot_bytes)
            && self.retry_at.is_none_or(|retry_at| now >= retry_at)
    }

    /// Notes that an image was taken, and is being written.
    pub fn on_taken(&mut self, image: Image) {
        (self.phase, self.later_bytes) = (Phase::Writing(image), 0);
    }

    /// Notes that the image is on the disk, under its temporary name.
    pub fn on_written(&mut self) {
        if let Phase::Writing(image) = self.phase {
            self.phase = Phase::Written(image);
        }
    }

    /// Returns the timestamp up to which all replicas must have stored all writes before the image
    /// may count.
    pub fn awaited(&self) -> Option<Timestamp> {
        match self.phase {
            Phase::Written(image) => Some(image.at),
            _ => None,
        }
    }

    /// Returns whether the image is to be installed now, as all replicas have stored all writes up
    /// to its last one by `is_stored`. An image that counts lets the log drop the records that it
    /// holds, which others may need otherwise.
    pub fn install(&mut self, is_stored: impl FnOnce(Timestamp) -> bool) -> bool {
        match self.phase {
            Phase::Written(image) if is_stored(image.at) => {
                self.phase = Phase::Installing(image);
                true
            }
            _ => false,
        }
    }

    /// Returns whether an image is being installed.
    pub fn is_installing(&self) -> bool {
        matches!(self.phase, Phase::Installing(_))
    }

    /// Notes that the last snapshot of the log ends with record `number`. Returns whether the image
    /// counts, if it was being installed.
    pub fn on_installed(&mut self, number: u64) -> bool {
        let Phase::Installing(image) = self.phase else { return false };
        if number < image.number {
            return false;
        }
        (self.snapshot_bytes, self.log_bytes) = (image.bytes, self.later_bytes);
        (self.phase, self.retry_at, self.is_failing) = (Phase::Idle, None, false);
        self.installed += 1;
        true
    }

    /// Notes that the snapshot has failed at `now`: another one is taken later. Returns whether the
    /// last one had not failed.
    pub fn on_failed(&mut self, now: Instant) -> bool {
        (self.phase, self.retry_at) = (Phase::Idle, Some(now + RETRY));
        self.failed += 1;
        !std::mem::replace(&mut self.is_failing, true)
    }

    /// Returns the lengths of the log and of its snapshot, and what has become of the snapshots.
    pub fn stats(&self) -> LogStats {
        LogStats {
            log_bytes: self.log_bytes,
            snapshot_bytes: self.snapshot_bytes,
            snapshots: self.installed,
            failed_snapshots: self.failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(schedule: &Schedule) -> (u64, u64, u64, u64) {
        let LogStats { log_bytes, snapshot_bytes, snapshots, failed_snapshots } = schedule.stats();
        (snapshot_bytes, log_bytes, snapshots, failed_snapshots)
    }

    fn image(number: u64, bytes: u64) -> Image {
        Image { number, at: Timestamp::from_ns(10 * number), bytes }
    }

    #[test]
    fn counts_when_all_have_stored_what_it_replaces() {
        let (now, at) = (Instant::now(), Timestamp::from_ns);
        let mut schedule = Schedule::new(100, 0, 60);
        assert!(!schedule.is_due(now));
        schedule.on_appended(41);
        assert!(schedule.is_due(now));
        schedule.on_taken(image(5, 300));
        assert!(!schedule.is_due(now) && !schedule.install(|_| true), "it is being written");
        schedule.on_appended(30);
        schedule.on_written();
        assert_eq!(schedule.awaited(), Some(at(50)));
        assert!(!schedule.install(|last| last != at(50)) && !schedule.is_installing());
        assert!(schedule.install(|last| last == at(50)) && schedule.is_installing());
        assert!(!schedule.on_installed(4));
        assert!(schedule.on_installed(5));
        assert_eq!(stats(&schedule), (300, 30, 1, 0));
        // The next one is due when the log is longer than the snapshot.
        schedule.on_appended(270);
        assert!(!schedule.is_due(now));
        schedule.on_appended(1);
        assert!(schedule.is_due(now));
    }

    #[test]
    fn failed_snapshot_is_tried_later_and_reported_once() {
        let now = Instant::now();
        let mut schedule = Schedule::new(100, 0, 101);
        schedule.on_taken(image(5, 300));
        assert!(schedule.on_failed(now));
        assert!(!schedule.is_due(now) && schedule.is_due(now + RETRY));
        assert_eq!(stats(&schedule), (0, 101, 0, 1), "the log is as it was");
        schedule.on_taken(image(6, 300));
        assert!(!schedule.on_failed(now + RETRY), "it was reported before");
        schedule.on_taken(image(7, 300));
        schedule.on_written();
        assert!(schedule.install(|_| true) && schedule.on_installed(7));
        schedule.on_taken(image(8, 300));
        assert!(schedule.on_failed(now), "another failure");
    }
}
