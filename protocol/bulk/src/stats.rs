//! Counters.

/// What a member has done since its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stats {
    /// Frames sent.
    pub frames_sent: u64,
    /// Frames that have come and were read.
    pub frames_received: u64,
    /// Frames that were no frames of ours: malformed, corrupt, or of another group.
    pub frames_dropped: u64,
    /// Frames that nobody who keeps the rules sends.
    pub violations: u64,
    /// Pieces sent, those sent again included.
    pub pieces_sent: u64,
    /// Frames of ours that were lost.
    pub frames_lost: u64,
    /// Pieces that were here already.
    pub pieces_duplicate: u64,
    /// Blocks whose digest was wrong.
    pub blocks_corrupt: u64,
    /// Blocks that we have asked others for.
    pub blocks_requested: u64,
    /// Bytes of pieces that were new here.
    pub bytes_received: u64,
}
