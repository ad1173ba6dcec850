//! Which node is linked to which, and which way leads to whom.
//!
//! scattering → send → `[topology: the ways]` → switch → receive → reorder → deliver
//!
//! A [`Topology`] is a value: hosts, switches and the links between their ports, laid out from a
//! [`Shape`]. Ports of a switch come in two groups, *lower* ones towards the hosts first, *upper*
//! ones behind them; a path climbs from lower to upper ports, turns once and descends
//! (valley-free), so the directed links form a DAG and every physical switch is two logical ones,
//! an up half and a down half (design: ordering.md section 3).
//!
//! A [`Route`] is one node's knowledge of the ways: range arithmetic where the tree is regular, a
//! bounded flat array where a software switch learns its processes. Among equal ways [`Spread`]
//! chooses.
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
//! - From every node every process is reached, climbing first and descending afterwards, never
//!   climbing again (tested over all shapes and all choices among equal ways).
//! - A route takes O(1) time and, in a regular tree, O(1) room, at 32 Ki hosts as at two.
//! - Pure description: it knows neither rates nor delays, nor which links are up.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod graph;
mod layout;
mod path;
mod route;
mod shape;
mod shape_text;
mod spread;
mod table;

pub use graph::{End, Link, Node, PortCounts, Topology};
pub use path::Path;
pub use route::{Next, PortRange, Route, Tree};
pub use shape::{PROCESSES_MAX, Shape, ShapeError};
pub use spread::Spread;
pub use table::Table;
