//! Agreed multicast over UDP.
//!
//! client → `[mesh_driver]` → member → `[mesh_driver]` → replica
//!
//! A [`Directory`] says who takes part and where; it is the same at all of them, and gives each its
//! process id. A [`MeshDriver`] is one machine with its socket and its clock: [`open`].
//!
//! # Invariants
//! - Two directories that name the same addresses in the same order give the same ids.
//! - A machine gets frames that are for it, from whatever address: who is no part of a group is
//!   refused by the machine.

#![forbid(unsafe_code)]

mod directory;
mod loopback;
mod mesh_driver;

pub use directory::{Directory, DirectoryError, GROUP_WINDOW, Role};
pub use loopback::Loopback;
pub use mesh_driver::{MeshDriver, OpenError, Options, open, open_with};
pub use onepipe_transport_udp::UdpMesh as Mesh;
