//! What happened, counted.

/// Frames that did not get through, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// An egress queue was full.
    pub queue_full: u64,
    /// Lost by a fault switch, alone or in a burst.
    pub lost: u64,
    /// The link was down, or was cut while they were on it.
    pub link_down: u64,
    /// They arrived at a node that had crashed.
    pub node_down: u64,
    /// They waited for a CPU and the ring was full.
    pub ring_full: u64,
    /// A machine would not have them (`Verdict::Dropped`): corrupt, stale or foreign.
    pub refused: u64,
}

/// What happened, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Everything that was taken from the event queue.
    pub events: u64,
    /// Frames that arrived at a node over a link: the packet-hop events.
    pub hops: u64,
    /// Frames that machines wrote, beacons included.
    pub polled: u64,
    /// Frames that did not get through.
    pub drops: Drops,
    /// Frames that met a long queue.
    pub marked: u64,
    /// Frames changed by a fault switch.
    pub corrupted: u64,
    /// Second copies made by a fault switch.
    pub duplicated: u64,
    /// Frames held up by a fault switch.
    pub delayed: u64,
}
