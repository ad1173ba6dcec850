//! Counters of an endpoint, all since its start.

/// What an endpoint has done and refused. Every field counts from 0 and never falls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stats {
    /// Scatterings accepted by `scatter`.
    pub scatterings_submitted: u64,
    /// Messages that left, or went to the process itself.
    pub messages_sent: u64,
    /// Messages handed to the application.
    pub messages_delivered: u64,
    /// Messages reported as lost.
    pub messages_lost: u64,
    /// Messages reported with unknown outcome.
    pub messages_unknown: u64,
    /// Frames that left, of every kind.
    pub frames_sent: u64,
    /// Of those, beacons.
    pub beacons_sent: u64,
    /// Of those, ACKs, NAKs and grants.
    pub acks_sent: u64,
    /// Of those, probes.
    pub probes_sent: u64,
    /// Frames that arrived intact and for this process.
    pub frames_received: u64,
    /// Data packets below the barrier on arrival: refused and NAKed.
    pub packets_late: u64,
    /// Data packets that were here before, or were fenced.
    pub packets_duplicate: u64,
    /// Data packets that bore the congestion flag.
    pub packets_marked: u64,
    /// Frames refused because they are corrupt, foreign or malformed.
    pub frames_malformed: u64,
    /// Frames for another process.
    pub frames_misrouted: u64,
    /// Frames of a former life of their sender, or about a former life of this process.
    pub frames_stale: u64,
    /// Packets that overran the window or the room given: refused and NAKed.
    pub window_violations: u64,
    /// Peers that did not answer `probes_max` probes, or have restarted.
    pub peers_unreachable: u64,
    /// Links that fell silent.
    pub links_lost: u64,
    /// Packets of the reliable service that were sent again.
    pub packets_retransmitted: u64,
    /// Reliable frames that were handed to a controller, because their receiver did not answer.
    pub frames_relayed: u64,
    /// Messages that were here and not delivered: taken back by their sender …
    pub messages_recalled: u64,
    /// … or scattered by a failed process at or above its failure timestamp.
    pub messages_discarded: u64,
    /// Recalls of scatterings that the commit barrier had passed: their messages may have been
    /// delivered. Not 0 only when a part of the fabric was cut off.
    pub recalls_late: u64,
    /// Processes that failed.
    pub processes_failed: u64,
}
