//! The rivals of `onepipe-baselines` in the same network, with plain datagrams.

mod cluster;
mod datagrams;
mod keyed;
mod process;
mod server;

pub(crate) use cluster::RivalCluster;
pub use process::{RivalNode, RivalProcess};
