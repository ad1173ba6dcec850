//! Replicas and clients of transactions in the simulated fabric.
//!
//! `load → client → [scattering] → replica → reply → client → history → checks`
//!
//! A [`Cluster`] has processes with replicas and clients of `onepipe-transaction` over the real
//! endpoints, switches and, if its plan has one, the controller, in virtual time. A [`Load`] says
//! what the clients do; it is generic over the [`State`](onepipe_transaction::State) of shards.
//!
//! [`run`] is a random scenario drawn from a seed, with a load that records its history, and with
//! faults: lossy links, pauses, crashes, clock steps. The history is checked by the checks of
//! `onepipe-history`, and the replicas by their digests.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod benchmark;
mod cluster;
mod environment;
mod lengths;
mod load;
mod measured;
#[cfg(feature = "mistakes")]
mod mutation;
mod node;
mod peak;
mod protocol;
mod recorded;
mod removal;
mod rivals;
mod run;
mod scenario;
mod server;
mod setup;
mod tpcc;
mod usage;
mod values;
mod zipf;

pub use benchmark::{Figures, Percentiles, Rates};
pub use cluster::Cluster;
pub use environment::{Environment, FabricSetup, ProcessServer, Program};
pub use lengths::Lengths;
pub use load::{Done, Load, Next, Terminal};
#[cfg(feature = "mistakes")]
pub use mutation::{SIMULATED, caught, detected};
pub use node::{Node, Process, endpoint_mut};
pub use peak::Peak;
pub use protocol::Protocol;
pub use recorded::{Counts, Mix, Recorded};
pub use removal::{Removal, RemovalFigures};
pub use rivals::{RivalNetwork, RivalNode, RivalProcess, RivalProgram};
pub use run::{Report, run};
pub use scenario::{FaultEvent, Scenario, draw_links, draw_network};
pub use setup::{Costs, Setup};
pub use tpcc::{TpccFigures, TpccRun};
pub use usage::{LinkBytes, Sent, Usage};
pub use values::{
    KeyMix, OperationMix, READ_ONLY, READ_WRITE, Values, ValuesLoad, ValuesRun, WRITE_ONLY,
};
pub use zipf::Zipf;
