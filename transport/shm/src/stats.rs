//! Counters of a segment.

/// Counters of one process's attachment to a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Frames sent into rings.
    pub frames_sent: u64,
    /// Frames received from rings.
    pub frames_received: u64,
    /// Frames marked with congestion because their receiver's share was half used.
    pub frames_marked: u64,
    /// Frames dropped because their receiver had stopped and used up its share.
    pub frames_overflowed: u64,
    /// Frames dropped because their receiver is not attached, or is dead.
    pub frames_unreachable: u64,
    /// Invalid entries from other processes.
    pub entries_refused: u64,
    /// Times that a burst was delayed or interrupted because a receiver had no capacity.
    pub bursts_held: u64,
    /// Times that memory for more slots was refused.
    pub growths_refused: u64,
    /// Sleeping receivers woken.
    pub wakes: u64,
    /// Processes found dead.
    pub deaths: u64,
}
