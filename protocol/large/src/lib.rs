//! Payloads of any size in the total order: an endpoint and bulk multicast as one machine.
//!
//! scattering → `[large: send]` → bulk → `[large: descriptor]` → endpoint → … → deliver
//!
//! A [`LargeEndpoint`] accepts scatterings as [`onepipe_endpoint::Endpoint`] does, but with large
//! payloads. A large payload is sent by bulk multicast to all its receivers, and is ordered by a
//! descriptor once it has reached all of them: *bulk first, order last* (docs/design/large.md,
//! "What happens, step by step?"). So no receiver waits in the delivery path for bytes that are
//! still in flight, and no message waits for an unrelated payload. Small payloads are sent as
//! before.
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
//! - The guarantees of an endpoint about order, atomicity and reports hold for messages of any size
//!   (I1 to I8, I12). A delivered payload is complete and unchanged.
//! - A payload that cannot reach all its receivers is not ordered, and its sender is notified.
//! - Memory is bounded by [`Config`]; a payload that does not fit a receiver waits at its sender.
//! - Frames of messages have priority over frames of bulk multicast.
//! - A scattering without a large payload costs one comparison per message.

#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

mod config;
mod deliver;
mod endpoint;
mod event;
mod incoming;
mod invariants;
mod objects;
mod open;
mod outgoing;
mod submit;

pub use config::{Config, ConfigError};
pub use endpoint::LargeEndpoint;
pub use event::{Delivery, Event, SendError, Stats};
