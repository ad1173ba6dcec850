//! Counters of sockets.

/// Counters of one socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Frames handed to the kernel.
    pub frames_sent: u64,
    /// GSO batches sent. The kernel handles a batch as one datagram until it segments it.
    pub gso_batches_sent: u64,
    /// Bytes sent, padding included.
    pub bytes_sent: u64,
    /// System calls that sent frames.
    pub sends: u64,
    /// Frames received.
    pub frames_received: u64,
    /// GRO batches received.
    pub gro_batches_received: u64,
    /// System calls that received frames.
    pub receives: u64,
    /// Frames dropped because the kernel refused them.
    pub frames_refused: u64,
    /// Port unreachable reports received.
    pub refusals: u64,
    /// Frames dropped because a queue was full.
    pub frames_overflowed: u64,
    /// Datagrams too long for any frame.
    pub gro_batches_truncated: u64,
    /// Times that the socket's send buffer was full.
    pub sends_blocked: u64,
    /// Times that the socket's receive buffer was found more than a quarter full.
    pub backlogs: u64,
}

/// Counters of a process's routes in an overlay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OverlayStats {
    /// Frames for other processes sent directly.
    pub frames_direct: u64,
    /// Frames for other processes sent by the tree, because no direct route was confirmed.
    pub frames_by_tree: u64,
    /// Address advertisements (queries and replies) sent.
    pub address_ads_sent: u64,
    /// Address advertisements (queries and replies) received.
    pub address_ads_received: u64,
    /// Misbehaviour, or a process that has restarted or moved: frames that came directly from an
    /// address which their sender has not proved to be its own. Dropped.
    pub frames_unproved: u64,
}
