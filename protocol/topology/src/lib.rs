//! Fabric topologies and routes.
//!
//! scattering → send → `[topology: routes]` → switch → receive → reorder → deliver
//!
//! A [`Topology`] is a value: hosts, switches and the links between their ports, built from a
//! [`Shape`]. A switch numbers its *lower* ports, towards the hosts, before its *upper* ones. A
//! path climbs from lower to upper ports, turns once and descends (valley-free), so the directed
//! links form a DAG and every physical switch is two logical ones, one for the uplink direction and
//! one for the downlink direction (1Pipe section 4).
//!
//! A [`Route`] is the routing state of one node: range arithmetic where the tree is regular, a
//! bounded array where a software switch learns its processes. [`Spread`] selects one of several
//! equal-cost next hops.
//!
//! **A host with several processes is a switch, too**: its lower ports `0..p` are its processes and
//! its one upper port `p` is the network card. `protocol/node` composes it so.
//!
//! ```
//! use onepipe_base::{HostId, ProcessId};
//! use onepipe_topology::{Node, Shape, Topology};
//!
//! let shape: Shape = "fat-tree:4".parse().expect("well-formed");
//! let topology = Topology::new(shape, 2).expect("16 hosts with 2 processes each are few");
//! assert_eq!((topology.hosts(), topology.switches(), topology.processes()), (16, 20, 32));
//! assert_eq!(topology.host_of(ProcessId(31)), HostId(15));
//! assert_eq!(topology.tier(Node::Host(HostId(15))), 1);
//! assert_eq!(topology.switches_between(HostId(0), HostId(15)), 5);
//! ```
//!
//! # Invariants
//! - Every link has its opposite: `peer(peer(end)) == end`.
//! - From every node every process is reached by first climbing and then descending (tested over
//!   all shapes and all choices among equal-cost paths).
//! - A route lookup takes O(1) time and, in a regular tree, O(1) memory, for 32 Ki hosts as for
//!   two.
//! - Pure description: it has neither rates nor delays, and does not know which links are up.

#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

mod forwarding_table;
mod graph;
mod layout;
mod next_hop;
mod path;
mod route;
mod shape;
mod shape_text;
mod spread;

pub use forwarding_table::ForwardingTable;
pub use graph::{End, Link, Node, PortCounts, Topology};
pub use next_hop::{NextHop, PortRange};
pub use path::Path;
pub use route::{Route, Tree};
pub use shape::{PROCESSES_MAX, Shape, ShapeError};
pub use spread::{FlowKey, Spread};
