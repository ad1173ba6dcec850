//! Counters of a switch.

use onepipe_base::Verdict;

/// Counters of a switch since its start. Frames received = `forwarded` + `acks_bundled` +
/// `beacons_received` + `joins_received` + `leaves_received` + `floods_received` +
/// `flood_acks_received` + `hellos_received` + all that begin with `dropped`, where a shared frame
/// counts once for each copy, and `forwarded` also counts the bundles that the switch has made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Stats {
    /// Frames forwarded: with rewritten promises, or unchanged in forms other than the chip.
    pub forwarded: u64,
    /// Those of them forwarded without a promise, because the switch did not advertise yet.
    pub forwarded_without_promise: u64,
    /// Acknowledgements that left in a bundle.
    pub acks_bundled: u64,
    /// Bundles of acknowledgements sent.
    pub ack_bundles_sent: u64,
    /// Beacons received.
    pub beacons_received: u64,
    /// Beacons sent.
    pub beacons_sent: u64,
    /// Solicits received, included in `beacons_received`.
    pub solicits_received: u64,
    /// Solicits sent, included in `beacons_sent`.
    pub solicits_sent: u64,
    /// Solicits that exceeded the budget of their link and were not answered at once.
    pub solicits_deferred: u64,
    /// Joins received.
    pub joins_received: u64,
    /// Leaves received.
    pub leaves_received: u64,
    /// Floods received, retransmissions included.
    pub floods_received: u64,
    /// Floods sent, retransmissions included.
    pub floods_sent: u64,
    /// Flood acknowledgements received.
    pub flood_acks_received: u64,
    /// Flood acknowledgements sent.
    pub flood_acks_sent: u64,
    /// Hello frames of controllers received.
    pub hellos_received: u64,
    /// Parts of announcements sent.
    pub announces_sent: u64,
    /// Links that timed out or were reported lost.
    pub links_lost: u64,
    /// Links whose commits were frozen.
    pub links_frozen: u64,
    /// Frozen links that a controller has resolved.
    pub links_resolved: u64,
    /// Restarts because this switch was declared dead.
    pub restarts: u64,
    /// Frames consumed or forwarded whose promises were ignored: their link is down until its other
    /// end knows that it was lost, or its peer is not known yet.
    pub ignored: u64,
    /// Malformed frames: truncated, corrupted or foreign.
    pub dropped_malformed: u64,
    /// Frames on a port that the switch does not have.
    pub dropped_port: u64,
    /// Frames for a process without a known route.
    pub dropped_unknown: u64,
    /// Frames whose route leads back to their input, or up again from an upper port.
    pub dropped_back: u64,
    /// Frames whose hop limit is used up.
    pub dropped_hops: u64,
    /// Misbehaviour: frames with a promise further ahead than [`crate::Config::ahead_ns_max`].
    pub dropped_ahead: u64,
    /// Misbehaviour: frames of a sender that cannot be at the other end of its link, or not while
    /// another one is alive there.
    pub dropped_misplaced: u64,
    /// Frames of an earlier incarnation than the one known at the other end of their link.
    pub dropped_stale: u64,
    /// Floods, acknowledgements and Hello frames where there are no controllers, and
    /// acknowledgements that are not outstanding.
    pub dropped_unexpected: u64,
    /// Events dropped because the event queue was full.
    pub events_lost: u64,
}

impl Stats {
    /// Returns the number of all dropped frames.
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

/// Counts a dropped frame.
#[cold]
pub(crate) fn count_drop(counter: &mut u64) -> Verdict {
    *counter += 1;
    Verdict::Dropped
}
