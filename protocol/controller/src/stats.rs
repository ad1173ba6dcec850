//! What is counted.

/// Counters of a controller, since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stats {
    /// Frames taken.
    pub frames_taken: u64,
    /// Frames sent.
    pub frames_sent: u64,
    /// Bytes that are no frame, or no payload of their opcode.
    pub dropped_malformed: u64,
    /// Frames for somebody else, or of a kind that controllers do not take.
    pub dropped_foreign: u64,
    /// Frames of a former life, and announcements of a former generation.
    pub dropped_stale: u64,
    /// Misbehaviour: ids that the configuration does not allow.
    pub dropped_range: u64,
    /// Frames that only an active replica takes.
    pub dropped_standby: u64,
    /// Frames and records that found too many before them.
    pub dropped_full: u64,
    /// Announcements taken, in all their parts.
    pub announcements: u64,
    /// How often the graph was looked at, after changes and when waiting was over.
    pub evaluations: u64,
    /// States of nodes and links that these looks have visited: what thinking costs.
    pub visits: u64,
    /// Misbehaviour: one life at two places.
    pub duplicate_registrations: u64,
    /// Frozen links of which nobody knows who was there.
    pub unknown_peers: u64,
    /// Lives decided to have failed.
    pub failures: u64,
    /// Of these, how many without all the registers that decide them.
    pub inexact: u64,
    /// Links given up although one end has no other way to some process: scatterings between the
    /// two may be delivered here and not there.
    pub partitions: u64,
    /// Waves begun.
    pub floods: u64,
    /// Waves begun anew because nobody answered.
    pub floods_restarted: u64,
    /// Waves and notices repeated.
    pub retransmissions: u64,
    /// Frames handed on.
    pub relayed: u64,
    /// Frames to hand on whose receiver is not known, or has failed.
    pub relays_refused: u64,
    /// Processes that gave no sign of life.
    pub pings_unanswered: u64,
    /// Recalls recorded.
    pub undeliverables: u64,
    /// Answers to processes that had failed.
    pub recoveries: u64,
    /// Records that the store did not take at once.
    pub store_failures: u64,
    /// Events that nobody fetched in time.
    pub events_lost: u64,
}
