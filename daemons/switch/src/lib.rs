//! The software switch: a user-space process that aggregates barriers, frame by frame, over UDP.
//!
//! scattering → send → `[switch daemon]` → receive → reorder → deliver
//!
//! [`SoftwareSwitch`] binds one socket. Whoever sends it a whole frame gets a port; which process
//! sits behind a port is learned from frames, by the machine
//! ([`onepipe_switch::Switch`], in chip form). Frames are rewritten where they have arrived and
//! sent on from there. With [`Config::up`] switches make a tree. Where the kernel says that nobody
//! listens any more, as after a kill, the port is free at once; who is cut off or hangs is missed
//! after the link timeout. [`Faults`] make it a bad network, repeatably, for tests; a [`LinkRate`]
//! makes it a slow one, whose queues can be seen; [`Racks`] make it one of several paths, whose
//! links may lose what takes them.
//!
//! # Invariants
//! - One thread: no frame is overtaken between its registration and its departure (ordering.md,
//!   "A parallel switch").
//! - Bounded: ports, memory and frames under way are fixed at the start, those that wait for a slow
//!   link by its queue. What finds no room is dropped and counted.
//! - It never ends by itself, whatever arrives.

#![forbid(unsafe_code)]

mod config;
mod egress;
mod faults;
mod machine;
mod ports;
mod racks;
mod software_switch;
mod stats;
mod transport;

pub use config::{CONTROLLED_LINK_TIMEOUT_NS, Config, LINK_TIMEOUT_NS, LinkRate, StartError};
pub use egress::QueueReport;
pub use faults::Faults;
pub use onepipe_base::{Controllers, SwitchId};
pub use racks::{Direction, Link, LinkReport, LossyLink, Racks};
pub use software_switch::SoftwareSwitch;
pub use stats::Stats;
