//! Counters of an endpoint, all since its start.

/// Counters of an endpoint since its creation. They never decrease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stats {
    /// Scatterings accepted by `scatter`.
    pub scatterings_submitted: u64,
    /// Messages sent, local ones included.
    pub messages_sent: u64,
    /// Messages delivered to the application.
    pub messages_delivered: u64,
    /// Messages reported as lost.
    pub messages_lost: u64,
    /// Messages reported with unknown outcome.
    pub messages_unknown: u64,
    /// Frames sent, of every kind.
    pub frames_sent: u64,
    /// Frames with several receivers sent, included in `frames_sent`.
    pub frames_shared: u64,
    /// Beacons sent, included in `frames_sent`.
    pub beacons_sent: u64,
    /// Solicits sent, included in `beacons_sent`.
    pub solicits_sent: u64,
    /// Solicits received.
    pub solicits_received: u64,
    /// ACKs, NAKs and grants sent, included in `frames_sent`.
    pub acks_sent: u64,
    /// Acknowledgements sent in front of messages.
    pub acks_piggybacked: u64,
    /// Probes sent, included in `frames_sent`.
    pub probes_sent: u64,
    /// Intact frames received for this process.
    pub frames_received: u64,
    /// Data packets below the barrier on arrival: rejected with a NAK.
    pub packets_late: u64,
    /// Data packets that were received or rejected before.
    pub packets_duplicate: u64,
    /// Data packets with the congestion mark.
    pub packets_marked: u64,
    /// Frames dropped as corrupt, foreign or malformed.
    pub frames_malformed: u64,
    /// Frames dropped because they were for another process or arrived on the wrong port.
    pub frames_misrouted: u64,
    /// Frames of a previous incarnation of their sender, or about a previous incarnation of this
    /// process.
    pub frames_stale: u64,
    /// Misbehaviour: frames, and promises in shared memory, with a promise further ahead than
    /// [`crate::Config::ahead_ns_max`]. Dropped.
    pub promises_ahead: u64,
    /// Packets that exceeded the sender's window or reservation: rejected with a NAK.
    pub window_violations: u64,
    /// Peers that did not answer `probes_max` probes, or have restarted.
    pub peers_unreachable: u64,
    /// Links that timed out.
    pub links_lost: u64,
    /// Packets retransmitted by the reliable service.
    pub packets_retransmitted: u64,
    /// Reliable frames sent by way of a controller, because their receiver did not respond.
    pub frames_relayed: u64,
    /// Received messages that were not delivered because their sender recalled them.
    pub messages_recalled: u64,
    /// Received messages that were not delivered because a failed process had scattered them at or
    /// above its failure timestamp.
    pub messages_discarded: u64,
    /// Recalls of scatterings that the commit barrier had passed: their messages may have been
    /// delivered. Non-zero only if a part of the fabric was cut off.
    pub recalls_late: u64,
    /// Recalls received and not taken, because as many as this process remembers or acknowledges
    /// were pending: 65,536 and 4,096. Their senders repeat them.
    pub recalls_refused: u64,
    /// Processes that failed.
    pub processes_failed: u64,
    /// Processes that have left gracefully.
    pub processes_left: u64,
}
