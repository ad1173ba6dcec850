//! Counters.

use onepipe_transport_driver::Duty;

/// What a pipe has done, all since it joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Messages and frames.
    pub endpoint: onepipe_endpoint::Stats,
    /// Turns and waits of whoever drives it.
    pub duty: Duty,
    /// What the fabric below has done.
    pub fabric: FabricStats,
}

/// Counters of the fabric below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FabricStats {
    /// Shared memory.
    SharedMemory(onepipe_transport_shm::Stats),
    /// A socket to a switch.
    Udp(onepipe_transport_udp::Stats),
    /// A socket to an aggregator and, past it, to all other processes.
    Overlay {
        /// The socket.
        socket: onepipe_transport_udp::Stats,
        /// Which way frames went.
        routes: onepipe_transport_udp::OverlayStats,
    },
}
