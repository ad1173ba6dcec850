//! Counters.

/// What a switch has done since it started. Frames received = `forwarded` + `beacons_heard` +
/// `joins_heard` + `leaves_heard` + all that begin with `dropped`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Stats {
    /// Frames sent on with rewritten promises.
    pub forwarded: u64,
    /// Of these, frames sent on without any promise, because the switch did not yet speak.
    pub forwarded_silent: u64,
    /// Beacons taken.
    pub beacons_heard: u64,
    /// Beacons sent.
    pub beacons_sent: u64,
    /// Joins taken.
    pub joins_heard: u64,
    /// Leaves taken.
    pub leaves_heard: u64,
    /// Octets that are no frame: truncated, corrupted or foreign.
    pub dropped_malformed: u64,
    /// Frames on a port that the switch does not have.
    pub dropped_port: u64,
    /// Frames for a process to which no way is known.
    pub dropped_unknown: u64,
    /// Frames whose way leads back to where they came from, or from an upper port up again.
    pub dropped_back: u64,
    /// Frames that have passed too many switches.
    pub dropped_hops: u64,
    /// Misbehaviour: frames with a promise further ahead than [`crate::Config::ahead_ns_max`].
    pub dropped_ahead: u64,
    /// Misbehaviour: joins and leaves of a process that cannot sit behind that port.
    pub dropped_misplaced: u64,
    /// Events that nobody fetched in time.
    pub events_lost: u64,
}

impl Stats {
    /// All frames dropped.
    pub const fn dropped(&self) -> u64 {
        self.dropped_malformed
            + self.dropped_port
            + self.dropped_unknown
            + self.dropped_back
            + self.dropped_hops
            + self.dropped_ahead
            + self.dropped_misplaced
    }
}
