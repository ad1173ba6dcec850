//! Counters of a pipe and of its fabric.

use onepipe_transport_driver::Duty;

/// Counters of a pipe since it joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Messages and frames of the endpoint.
    pub endpoint: onepipe_endpoint::Stats,
    /// Turns and waits of the driver.
    pub duty: Duty,
    /// Frames of the fabric.
    pub fabric: FabricStats,
}

/// Counters of the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FabricStats {
    /// Shared memory.
    SharedMemory(onepipe_transport_shm::Stats),
    /// A socket to a switch.
    Udp(onepipe_transport_udp::Stats),
    /// A socket to an aggregator and directly to all other processes.
    Overlay {
        /// The socket.
        socket: onepipe_transport_udp::Stats,
        /// Frames by route.
        routes: onepipe_transport_udp::OverlayStats,
    },
}
