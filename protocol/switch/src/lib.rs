//! The switch: forwards frames and tells every output link what all its inputs together promise.
//!
//! scattering → send → `[switch]` → receive → reorder → deliver
//!
//! The one public machine is [`Switch`], set up by a [`Config`]. Frames go in by `handle_frame` and
//! come out, rewritten in place, by `Verdict::Forward`; beacons come out of `poll_transmit`, and
//! [`SwitchEvent`]s tell which links live. It knows nothing about messages, PSN order or windows;
//! marking congestion is left to the world around it, which has the queues.
//!
//! Where a fabric has controllers ([`Config::controllers`]; design: failure.md) a switch also
//! - knows which life of whom is at the other end of each link, and hears nobody else there;
//! - freezes the commit of a link that is lost, left, deaf or reborn until a controller resolves
//!   it;
//! - announces its links to all controllers, and greets none of them itself;
//! - passes the waves of the active one on and answers them when all behind it have answered.
//!
//! A physical switch is two logical ones, so that the links form a DAG: the *up* half feeds the
//! upper ports from the lower ones; the *down* half feeds each lower port from the upper ones and
//! from all other lower ones.
//!
//! ```
//! use onepipe_base::{Incarnation, Machine, Mono, Now, Port, ProcessId, Timestamp, Verdict};
//! use onepipe_base::{Promises, Psn};
//! use onepipe_switch::{Config, Switch};
//! use onepipe_topology::{Route, Table};
//! use onepipe_wire::{Header, Opcode, seal};
//!
//! let config = Config::new(2, 0, Route::Table(Table::new(8, false)));
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
//! - I9: what is told on a link never moves back (design: ordering.md section 7).
//! - Nothing is told that a live input has not promised; what a switch cannot vouch for it does not
//!   pass on, least of all a frame's own promise.
//! - A commit is told on a link only once its other end has echoed this life of the switch, and no
//!   promise of a life is ever taken for one of another: so a switch that starts anew with empty
//!   registers lets no commit pass that its former life held.
//! - Frames of the controllers' range make no link live, and their promises count nowhere.
//! - A frame is never overtaken between its registration and its departure: the machine is one
//!   thread, and the driver keeps each port in order (rule D3).
//! - Bounded: no allocation after [`Switch::new`] but for what a death holds, one entry a port and
//!   address; every per-frame step takes constant time but the search for a new minimum, which
//!   takes one pass over the ports.
//!
//! What the other forms ([`Form`]) do with a frame that passes is in the module `form`.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod config;
mod eager;
mod event;
mod stats;

mod aggregator;
mod clock;
mod links;
mod liveness;

mod announcer;
mod control;
mod controller_ports;
mod flood;
mod restart;

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
