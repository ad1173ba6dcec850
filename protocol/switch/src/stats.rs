//! Counters.

/// What a switch has done since it started. Frames received = `forwarded` + `beacons_received` +
/// `joins_received` + `leaves_received` + `floods_received` + `flood_acks_received` + `hellos_received` + all that
/// begin with `dropped`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Stats {
    /// Frames sent on: with rewritten promises, or in another form than the chip's as they were.
    pub forwarded: u64,
    /// Of these, frames sent on without any promise, because the switch did not yet speak.
    pub forwarded_without_promise: u64,
    /// Beacons taken.
    pub beacons_received: u64,
    /// Beacons sent.
    pub beacons_sent: u64,
    /// Joins taken.
    pub joins_received: u64,
    /// Leaves taken.
    pub leaves_received: u64,
    /// Waves taken, repeated ones included.
    pub floods_received: u64,
    /// Waves sent, repeated ones included.
    pub floods_sent: u64,
    /// Answers to waves taken.
    pub flood_acks_received: u64,
    /// Answers to waves sent.
    pub flood_acks_sent: u64,
    /// Greetings of controllers taken.
    pub hellos_received: u64,
    /// Parts of announcements sent.
    pub announces_sent: u64,
    /// Links found silent for too long, or lost for certain.
    pub links_lost: u64,
    /// Links whose commits were frozen.
    pub links_frozen: u64,
    /// Frozen links that a controller has resolved.
    pub links_resolved: u64,
    /// New lives that were begun because the one before was declared dead.
    pub restarts: u64,
    /// Frames that were taken or passed on, but not heard: their link is down until its other end
    /// knows that it was lost, or it is not known yet who is there.
    pub ignored: u64,
    /// Bytes that are no frame: truncated, corrupted or foreign.
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
    /// Misbehaviour: a frame of somebody who cannot be at the other end of its link, or who is not
    /// while another is alive there.
    pub dropped_misplaced: u64,
    /// Frames of an earlier life than the one that is known at the other end of their link.
    pub dropped_stale: u64,
    /// Waves, answers and greetings where there are no controllers, and answers that nobody waits
    /// for.
    pub dropped_unexpected: u64,
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
            + self.dropped_stale
            + self.dropped_unexpected
    }
}
