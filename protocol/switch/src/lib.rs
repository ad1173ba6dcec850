//! The switch: forwards frames and advertises on every output link what all its inputs promise.
//!
//! scattering → send → `[switch]` → receive → reorder → deliver
//!
//! The one public machine is [`Switch`], set up by a [`Config`]. Frames go in by `handle_frame` and
//! come out, rewritten in place, by `Verdict::Forward`; beacons come out of `poll_transmit`, and
//! [`SwitchEvent`]s report which links are live. The switch knows nothing about messages, PSN order
//! or windows. Congestion marking is left to the caller, which has the queues.
//!
//! In a fabric with controllers ([`Config::controllers`]; `docs/design/failure.md`) a switch also
//! - tracks the instance at the other end of each link, and accepts no other there;
//! - freezes the commit of a link that is lost, left, one-way or restarted until a controller
//!   resolves it;
//! - announces its links to all controllers;
//! - passes the floods of the active controller on, and acknowledges them when all nodes behind it
//!   have.
//!
//! A physical switch is two logical ones, so that the links form a DAG: the *uplink* aggregator
//! feeds the upper ports from the lower ones; the *downlink* aggregator feeds each lower port from
//! the upper ones and from all other lower ones.
//!
//! ```
//! use onepipe_base::{Incarnation, Machine, Mono, Now, Port, ProcessId, Timestamp, Verdict};
//! use onepipe_base::{Promises, Psn};
//! use onepipe_switch::{Config, Switch};
//! use onepipe_topology::{ForwardingTable, Route};
//! use onepipe_wire::{Header, Opcode, seal};
//!
//! let table = ForwardingTable::new(8, false);
//! let config = Config::new(2, 0, Route::ForwardingTable(table));
//! let mut switch = Switch::new(config).expect("two ports are enough");
//! let now = Now { mono: Mono::from_ns(0), sync: Timestamp::from_ns(1 << 50) };
//! let mut bytes = [0; 64];
//! let (joined, passed) = (Verdict::Consumed, Verdict::Forward(Port(1)));
//! let frames = [(Opcode::Join, 0, joined), (Opcode::Join, 1, joined), (Opcode::Reset, 0, passed)];
//! for (opcode, src, verdict) in frames {
//!     let header = Header::new(opcode, ProcessId(src), ProcessId(1), Incarnation(1));
//!     let header = header.stamped(now.sync, Promises::both(now.sync), Psn::FIRST);
//!     let length = seal(&mut bytes, header, 0);
//!     assert_eq!(switch.handle_frame(now, Port(src as u16), &mut bytes[..length]), verdict);
//! }
//! ```
//!
//! # Invariants
//! - Advertised promises on a link never decrease (`ARCHITECTURE.md`, "Invariants", I9).
//! - Nothing is advertised that a live input has not promised. A frame's own promise is never
//!   passed on.
//! - A commit is advertised on a link only once its other end has confirmed this incarnation of the
//!   switch, and promises of one instance are never attributed to another: so a restarted switch
//!   with empty registers releases no commit that its previous incarnation held.
//! - Frames of the controllers' opcode range make no link live, and their promises are ignored.
//! - No frame is overtaken between its arrival and its departure: the machine is single-threaded,
//!   and the driver keeps each port in order (rule D3).
//! - Bounded memory: no allocation after [`Switch::new`] except for what dead links hold, one entry
//!   per port and address. Every per-frame step takes constant time except the search for a new
//!   minimum, which is one pass over the ports.
//!
//! How other forms ([`Form`]) treat a passing frame is described in the module `form`.

#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

mod config;
mod eager;
mod event;
mod routes;
mod stats;

mod ack_bundles;
mod aggregator;
mod clock;
mod joiners;
mod leavers;
mod links;
mod liveness;
mod start;

mod announcer;
mod control;
mod controller_ports;
mod demand;
mod fence;
mod flood;

mod beacon;
mod form;
mod port_set;
mod switch;

pub use config::{Config, ConfigError};
pub use eager::Eager;
pub use event::SwitchEvent;
pub use form::Form;
pub use stats::Stats;
pub use switch::Switch;
