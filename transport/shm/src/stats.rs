//! What has happened.

/// Counters of one process's hold on a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Frames put into rings.
    pub frames_sent: u64,
    /// Frames taken out of rings.
    pub frames_received: u64,
    /// Frames that bear the congestion mark because their receiver's share was half used.
    pub frames_marked: u64,
    /// Frames dropped because their receiver had used up its share: it has stopped.
    pub frames_overflowed: u64,
    /// Frames dropped because there is no such receiver, or it is dead.
    pub frames_unreachable: u64,
    /// Entries from others that made no sense.
    pub entries_refused: u64,
    /// Times that a burst was put off, or going on with it, because a receiver was short of room.
    pub bursts_held: u64,
    /// Sleeping receivers woken.
    pub wakes: u64,
    /// Processes found dead.
    pub deaths: u64,
}
