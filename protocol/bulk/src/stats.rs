//! Counters of a member.

/// Counters of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stats {
    /// Frames sent.
    pub frames_sent: u64,
    /// Frames received and processed.
    pub frames_received: u64,
    /// Frames dropped: malformed, corrupt, or of another group.
    pub frames_dropped: u64,
    /// Frames that violate the protocol.
    pub violations: u64,
    /// Pieces sent, including retransmissions.
    pub pieces_sent: u64,
    /// Frames sent that were lost.
    pub frames_lost: u64,
    /// Pieces received more than once.
    pub pieces_duplicate: u64,
    /// Blocks with a wrong digest.
    pub blocks_corrupt: u64,
    /// Blocks requested from other members.
    pub blocks_requested: u64,
    /// Bytes of pieces received, without duplicates.
    pub bytes_received: u64,
}
