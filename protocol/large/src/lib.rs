//! Payloads of any size in the total order: an endpoint and bulk multicast as one machine.
//!
//! scattering → `[large: send]` → bulk → `[large: descriptor]` → endpoint → … → deliver
//!
//! A [`LargeEndpoint`] takes scatterings as [`onepipe_endpoint::Endpoint`] does, with payloads that
//! may be large. A large one travels on the side, by bulk multicast to all its receivers, and gets
//! its place in the order when it has come to all of them: *bulk first, order last* (design:
//! bulk.md section 5, docs/design/large.md). So no receiver waits in the delivery path for bytes
//! that are on their way, and nobody's messages wait for a payload that they have nothing to do
//! with. Small payloads take the way that they always took.
//!
//! ```
//! use onepipe_base::{Incarnation, Machine, Mono, Now, ProcessId, Timestamp};
//! use onepipe_endpoint::{Links, Message};
//! use onepipe_large::{Config, Event, LargeEndpoint};
//!
//! let endpoint = onepipe_endpoint::Config::new(ProcessId(0), Incarnation(1));
//! let endpoint = onepipe_endpoint::Config { links: Links::Mesh, ..endpoint };
//! let mut alone = LargeEndpoint::new(Config::new(endpoint))?;
//! let payload = vec![7; 1 << 20];
//! alone.scatter_reliably(&[Message { to: ProcessId(0), payload: &payload }])?;
//! let mut delivered = None;
//! for ns in 1..10 {
//!     let now = Now { mono: Mono::from_ns(ns), sync: Timestamp::from_ns(ns) };
//!     alone.handle_timeout(now);
//!     assert!(alone.poll_transmit(now, &mut [0; 1472]).is_none(), "it talks to itself");
//!     delivered = delivered.or(alone.poll_event());
//! }
//! let Some(Event::Delivered(delivery)) = delivered else { panic!() };
//! assert!(alone.take(delivery) == payload);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Invariants
//! - Everything that an endpoint promises of order, atomicity and reports holds of messages of any
//!   size (I1 to I8, I12). What is delivered is whole, and what was sent (K).
//! - A payload that cannot come to all its receivers is ordered nowhere, and its sender is told.
//! - Memory is bounded by [`Config`]; what has no room at a receiver waits at its sender.
//! - Frames of messages go before frames of bulk multicast.
//! - A scattering without a large payload costs a comparison for each of its messages.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod config;
mod deliver;
mod endpoint;
mod event;
mod incoming;
mod objects;
mod outgoing;
mod submit;

pub use config::{Config, ConfigError};
pub use endpoint::LargeEndpoint;
pub use event::{Delivery, Event, SendError, Stats};
