//! Errors of starting a software switch.

use std::io;
use std::net::SocketAddr;

/// Why a software switch could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A number of the configuration is outside its range.
    #[error("{field} = {value} is out of range")]
    OutOfRange {
        /// The field of [`crate::Config`].
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// No such link exists among its racks and paths.
    #[error(
        "there is no link of rack {rack} to path {path}: racks are 0 to {} and paths 0 to {}",
        .racks - 1, .paths - 1
    )]
    UnknownLink {
        /// The rack that was named.
        rack: u32,
        /// The path that was named.
        path: u32,
        /// The number of racks.
        racks: u32,
        /// The number of paths.
        paths: u32,
    },
    /// The loss is no probability.
    #[error("loss = {0} is out of range: a probability lies between 0 and 1")]
    Loss(f64),
    /// Links were named, but no racks are configured.
    #[error("cannot set link losses: no racks are configured")]
    NoRacks,
    /// The machine's part of the configuration is invalid.
    #[error(transparent)]
    Switch(#[from] onepipe_switch::ConfigError),
    /// The switch above does not answer, or refuses this one.
    #[error(transparent)]
    Join(#[from] onepipe_transport_udp::JoinFailure),
    /// The build has no kernel program.
    #[error(
        "this build has no switch in the kernel; build with `--features xdp`, which needs clang"
    )]
    NoXdp,
    /// The switch in the kernel cannot do what else was asked for.
    #[error("a switch in the kernel (xdp) {0}")]
    XdpLimit(&'static str),
    /// The switch in the kernel does not start.
    #[cfg(feature = "xdp")]
    #[error("cannot start the switch in the kernel")]
    Xdp(#[from] onepipe_dataplane_xdp::KernelError),
    /// The socket could not be opened or bound.
    #[error("cannot listen at {bind}")]
    Socket {
        /// The configured address.
        bind: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
}
