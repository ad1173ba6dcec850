//! Replicas and clients of transactions in the simulated fabric.
//!
//! `load → client → [scattering] → replica → reply → client → history → checks`
//!
//! A [`Cluster`] has processes with replicas and clients of `onepipe-transaction` over the real
//! endpoints, switches and, if its plan has one, the controller, in virtual time. A [`Load`] says
//! what the clients do; it is generic over the [`State`](onepipe_transaction::State) of the shards.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod application;
mod cluster;
mod load;
mod node;
mod server;
mod setup;

pub use cluster::Cluster;
pub use load::{Done, Lane, Load, Next};
pub use node::{Node, NodeEvent, Process};
pub use setup::{Costs, Setup};
