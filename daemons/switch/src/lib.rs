//! The software switch: a user-space process that aggregates barriers, frame by frame, over UDP.
//!
//! scattering → send → `[switch daemon]` → receive → reorder → deliver
//!
//! [`SoftwareSwitch`] binds one socket. A sender of a valid frame gets a port; the machine
//! ([`onepipe_switch::Switch`], in chip form) learns from frames which process is behind a port.
//! Frames are rewritten in their receive buffers and sent on from there. With [`Config::up`]
//! switches form a tree. When the kernel reports that no socket listens at a neighbour's address,
//! as after a kill, its port is free at once; a neighbour that is cut off or hangs times out.
//! [`Faults`] make it a repeatable bad network for tests; a [`LinkRate`] makes it a slow one with
//! visible queues; [`Racks`] make it one with several paths, whose links may lose frames.
//!
//! # Invariants
//! - One thread: no frame is overtaken between its arrival and its departure (rule D3 of
//!   `transport/driver/src/lib.rs`).
//! - Bounded: ports, memory and frames in flight are fixed at the start, frames that wait for a
//!   slow link by its queue. What exceeds that is dropped and counted.
//! - It never ends by itself, whatever arrives.

#![forbid(unsafe_code)]

mod config;
#[cfg(feature = "xdp")]
mod data_path;
#[cfg(not(feature = "xdp"))]
#[path = "no_data_path.rs"]
mod data_path;
mod egress;
mod error;
mod faults;
mod gate;
mod machine;
mod ports;
mod racks;
mod software_switch;
mod stats;
mod transport;

pub use config::{
    CONTROLLED_LINK_TIMEOUT_NS, Config, HEARTBEAT_INTERVAL_NS, LINK_TIMEOUT_NS, LinkRate,
};
pub use egress::QueueReport;
pub use error::StartError;
pub use faults::Faults;
pub use onepipe_base::{Controllers, SwitchId};
pub use racks::{Direction, Link, LinkReport, LossyLink, Racks};
pub use software_switch::SoftwareSwitch;
pub use stats::Stats;
