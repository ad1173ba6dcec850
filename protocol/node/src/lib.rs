//! Nodes composed of several machines.
//!
//! scattering → send → `[node: host]` → switch → `[node: host]` → receive → reorder → deliver
//!
//! The one public machine is [`Host`]: several processes behind a virtual switch, as one machine
//! with one link, its network card. Processes of a host reach each other without the card. A host
//! is generic over its parts, and does not interpret their frames.
//!
//! # Invariants
//! - A frame between two parts is handed over before anything else is polled: a port inside the
//!   host is FIFO and lossless.
//! - Frames are never copied: a process writes into the driver's buffer, the virtual switch
//!   rewrites the frame there, and a process of the same host reads it there.
//! - Processes are polled round robin: none starves another.
//! - Bounded: no allocation after [`Host::new`].

#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

mod host;
mod ready_set;

pub use host::{Host, HostEvent};
