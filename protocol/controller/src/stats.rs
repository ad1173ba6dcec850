//! Counters of a controller.

/// Counters of a controller since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stats {
    /// Frames accepted.
    pub frames_taken: u64,
    /// Frames sent.
    pub frames_sent: u64,
    /// Frames that are malformed, or whose payload is.
    pub dropped_malformed: u64,
    /// Frames for another receiver, or of an opcode that controllers do not accept.
    pub dropped_foreign: u64,
    /// Frames of a previous incarnation, and announcements of a previous generation.
    pub dropped_stale: u64,
    /// Misbehaviour: ids beyond the configured limits.
    pub dropped_range: u64,
    /// Frames that only an active replica accepts.
    pub dropped_standby: u64,
    /// Frames and records that exceeded a queue.
    pub dropped_full: u64,
    /// Misbehaviour: announcements with more neighbours, or more incarnations of one, than a node
    /// can have.
    pub dropped_excessive: u64,
    /// Announcements that changed the graph.
    pub announcements: u64,
    /// Evaluations of the graph.
    pub evaluations: u64,
    /// States of nodes and links visited by evaluations: a measure of their cost.
    pub visits: u64,
    /// Misbehaviour: processes that more than one switch listed at a lower port.
    pub duplicate_registrations: u64,
    /// Frozen links that were resolved although their peer is unknown.
    pub unknown_peers: u64,
    /// Processes decided to have failed, except those that left gracefully.
    pub failures: u64,
    /// Switches decided to have failed: also those that were ended to be restarted.
    pub switch_failures: u64,
    /// Instances that left gracefully.
    pub leaves: u64,
    /// Failures decided without all the registers that determine F.
    pub inexact: u64,
    /// Severed links without another path from one end to some process: scatterings between the two
    /// may be delivered at one and not at the other.
    pub partitions: u64,
    /// Notification rounds started.
    pub floods: u64,
    /// Rounds restarted because no acknowledgement arrived.
    pub floods_restarted: u64,
    /// Retransmissions of floods and notices.
    pub retransmissions: u64,
    /// Frames relayed.
    pub relayed: u64,
    /// Relay requests whose receiver is unknown or has failed.
    pub relays_refused: u64,
    /// Processes that did not answer a ping in time.
    pub pings_unanswered: u64,
    /// Recalls recorded.
    pub undeliverables: u64,
    /// Recovery replies sent.
    pub recoveries: u64,
    /// Failed attempts to write a record.
    pub store_failures: u64,
    /// Events dropped because the event queue was full.
    pub events_lost: u64,
}
