//! Machines composed into nodes.
//!
//! scattering → send → `[node: host]` → switch → `[node: host]` → receive → reorder → deliver
//!
//! The one public machine is [`Host`]: several processes behind a virtual switch, as one machine
//! with one link, its network card. Processes of one host reach each other without it. It knows
//! nothing about what its parts say to each other: any machines will do that keep the contract.
//!
//! # Invariants
//! - A frame between two parts is handed over before anything else is polled: a port inside the
//!   host is FIFO and loses nothing.
//! - Frames are never copied: a process writes into the driver's slot, the virtual switch rewrites
//!   it there, and a process of the same host reads it there.
//! - Processes are polled in turn: none starves another.
//! - Bounded: no allocation after [`Host::new`].

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod flags;
mod host;

pub use host::{Host, HostEvent};
