//! Agreed multicast over UDP.
//!
//! client → `[mesh driver]` → member → `[mesh driver]` → replica
//!
//! A [`Directory`] lists the processes and their addresses; it is the same at all of them, and
//! assigns the process ids. A [`MeshDriver`] is one machine with its socket and its clock:
//! [`open`].
//!
//! # Invariants
//! - Two directories with the same addresses in the same order assign the same ids.
//! - A frame counts only if it comes from the address that the directory has for its sender.

#![forbid(unsafe_code)]

mod directory;
mod loopback;
mod mesh_driver;

pub use directory::{Directory, DirectoryError, GROUP_WINDOW, Role};
pub use loopback::Loopback;
pub use mesh_driver::{MeshDriver, OpenError, Options, open, open_with};
pub use onepipe_transport_udp::UdpMesh as Mesh;
