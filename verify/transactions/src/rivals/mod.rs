//! The rivals of `onepipe-baselines` in the same network, with plain datagrams.

mod cluster;
mod datagrams;
mod keyed;
mod network;
mod process;
mod server;

pub(crate) use cluster::RivalCluster;
pub use network::{RivalNetwork, RivalProgram};
pub use process::{RivalNode, RivalProcess};
