//! The endpoint of a process: ordered scattering as a sans-IO state machine.
//!
//! `[scattering → send]` → switch → `[receive → reorder → deliver]`
//!
//! An [`Endpoint`] takes scatterings ([`Endpoint::scatter`]), received frames and the current time.
//! An endpoint returns frames to send and [`Event`]s: messages in the total order
//! `(timestamp, sender, index)` and a report of every message of this process that was lost. Its
//! memory is bounded by [`Config`]; drive it as [`onepipe_base::Machine`] describes.
//!
//! ```
//! use onepipe_base::{Incarnation, Machine, Mono, Now, ProcessId, Timestamp};
//! use onepipe_endpoint::{Config, Endpoint, Event, Links, Message};
//!
//! let config = Config { links: Links::Mesh, ..Config::new(ProcessId(0), Incarnation(1)) };
//! let mut alone = Endpoint::new(config)?;
//! alone.scatter(&[Message { to: ProcessId(0), payload: b"hello" }])?;
//! for ns in [1_000, 2_000, 3_000] {
//!     let now = Now { mono: Mono::from_ns(ns), sync: Timestamp::from_ns(ns) };
//!     assert!(alone.poll_transmit(now, &mut [0; 1472]).is_none(), "no frame is needed");
//! }
//! let Some(Event::Delivered(delivery)) = alone.poll_event() else { panic!() };
//! assert_eq!(alone.payload(&delivery), b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Invariants
//! - I1 messages are delivered in ascending `(timestamp, sender, index)`.
//! - I3 the endpoint assigns only timestamps above every timestamp that it has delivered.
//! - I4 no message is delivered twice; I5 messages of one sender are delivered in order.
//! - I11 send and receive buffers stay within their configured sizes.
//! - I12 every message is delivered or reported as failed; never both, except with
//!   [`Outcome::Unknown`].
//! - An endpoint depends neither on the number of switches nor on the source of its clock.

#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

mod arena;
mod channel;
mod config;
mod control;
mod demand;
mod endpoint;
mod link;
mod peers;
mod receive;
pub mod reorder;
mod scattering;
mod send;
mod stats;
mod timestamp;

pub use config::{Config, ConfigError, Links, ReceiveMode};
pub use control::ControlStats;
pub use endpoint::Endpoint;
pub use onepipe_wire::Service;
pub use scattering::{
    Delivery, Event, FailureReason, MESSAGE_CHARGE_BYTES, Message, OpenScattering, Outcome,
    ProcessFailed, ProcessLeft, SendError, SendFailed,
};
pub use stats::Stats;
