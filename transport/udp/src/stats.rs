//! What has happened.

/// Counters of one socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Frames handed to the kernel.
    pub frames_sent: u64,
    /// Trains they went in; a train is one datagram to most of the kernel.
    pub gso_batches_sent: u64,
    /// Bytes of them, padding included.
    pub bytes_sent: u64,
    /// System calls that sent something.
    pub sends: u64,
    /// Frames received.
    pub frames_received: u64,
    /// Trains they came in.
    pub gro_batches_received: u64,
    /// System calls that asked for some.
    pub receives: u64,
    /// Frames dropped because the kernel refused them.
    pub frames_refused: u64,
    /// Reports that nobody listens where something was sent.
    pub refusals: u64,
    /// Frames dropped because there was no room left for them.
    pub frames_overflowed: u64,
    /// Datagrams too long for any frame.
    pub gro_batches_truncated: u64,
    /// Times that the socket's send buffer was full.
    pub sends_blocked: u64,
    /// Times that the socket's receive buffer was found more than a quarter full.
    pub backlogs: u64,
}

/// Counters of a process's two ways in an overlay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OverlayStats {
    /// Frames for other processes that went to them directly.
    pub frames_direct: u64,
    /// Frames for other processes that went by the tree, because no other way was open.
    pub frames_by_tree: u64,
    /// Questions and answers about where processes are, sent.
    pub address_ads_sent: u64,
    /// Questions and answers about where processes are, received.
    pub address_ads_received: u64,
}
