//! A packet-level network simulator: links, queues, clocks and CPUs with faults, around any
//! machines.
//!
//! This crate is one of the drivers of the protocol machines; the transports are the others. It
//! interprets only the header of a frame, as needed for ECN marks and for loss rates by kind of
//! frame.
//!
//! [`Network`] is built from a `Topology`, a [`Config`] and a seed. Its nodes are the hosts and
//! then the switches of the topology, each a [`onepipe_base::Machine`] that an [`Application`]
//! builds, commands and observes. A frame that leaves a node costs one event: its queueing,
//! transmission and propagation delays are computed at departure from the time at which the link
//! becomes free.
//!
//! # Invariants
//! - Equal topology, configuration and seed give equal histories ([`Network::trace_hash`]).
//! - The driver rules of `Machine` hold: clocks are read once per batch, timers are never early,
//!   frames of one port leave in the order in which they were polled (on a link with one class and
//!   without faults).
//! - Each node handles its own events in time order. Events of different nodes are handled in time
//!   order, too, unless lookahead is enabled ([`Config::uses_lookahead`]).
//! - With lookahead nodes may run on several threads ([`Config::threads`]). The history is the same
//!   for every number of threads.
//! - A host is polled only while its NIC has space, so its messages are stamped shortly before they
//!   leave.
//! - Nothing is allocated per frame in the steady state, if each node sends about as many frames as
//!   it receives.

#![forbid(unsafe_code)]

mod application;
mod clock;
mod config;
mod driver;
mod egress;
mod fabric_node;
mod fault;
mod ids;
mod injection;
mod link;
mod link_faults;
mod lookahead;
mod network;
mod off_chip_cpu;
mod parallel;
mod part;
mod pool;
mod priority;
mod run;
mod stats;
mod testbed;
mod workload;

pub use application::{Application, Divide, DividedApplication, NodeContext};
pub use clock::{Clock, ClockError, clock_origin};
pub use config::{ClockConfig, ClockTail, Config, CpuConfig};
pub use fabric_node::{FabricEvent, FabricNode, NoMachine};
pub use fault::Fault;
pub use ids::{LinkId, NodeId};
pub use link::LinkConfig;
pub use link_faults::{LinkFaults, Loss};
pub use network::Network;
pub use off_chip_cpu::{OffChipCpu, Placement};
pub use stats::{Drops, HopKind, Stats};
pub use testbed::Testbed;
pub use workload::{Load, OutgoingMessage, SendPattern, Workload, WorkloadGenerator};
