//! A packet-level network around any machines: links, queues, clocks, CPUs and their faults.
//!
//! `[network]` is one of the worlds that drive the machines; the transports are the others. It
//! knows of frames only what a wire would see, and what it needs to mark congestion and to lose
//! beacons more often than data.
//!
//! [`Network`] is built from a `Topology`, a [`Config`] and a seed. Its nodes are the hosts and
//! then the switches of the topology, each a [`onepipe_base::Machine`] that an [`Application`]
//! builds, commands and observes. A frame that leaves a node is one event: its queueing, sending
//! and propagation are settled at departure, from the time at which the link becomes free.
//!
//! # Invariants
//! - Equal topology, configuration and seed give equal histories ([`Network::trace_hash`]).
//! - The driver rules of `Machine` hold: clocks are read once per batch, timers are never early,
//!   frames of one port leave in the order in which they were polled (one class, no fault).
//! - Each node lives through its own events in the order of time. Events of different nodes are
//!   handled in that order, too, unless nodes take turns ([`Config::takes_turns`]).
//! - A host is polled only while its network card has room: messages are stamped at departure.
//! - Nothing is allocated per frame in the steady state.

#![forbid(unsafe_code)]

mod application;
mod aside;
mod clock;
mod config;
mod depart;
mod drive;
mod faults;
mod link;
mod network;
mod pool;
mod priority;
mod schedule;
mod stats;
mod turns;
mod workload;

pub use application::{Application, At};
pub use aside::{Aside, Placement};
pub use clock::{Clock, ClockError, origin_of};
pub use config::{ClockConfig, Config, CpuConfig, LinkId, NodeId};
pub use faults::{LinkFaults, Loss};
pub use link::LinkConfig;
pub use network::Network;
pub use schedule::Fault;
pub use stats::{Drops, HopKind, Stats};
pub use workload::{Destination, Load, Pace, Scatterings, Workload};
