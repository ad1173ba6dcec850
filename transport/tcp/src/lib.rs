//! TCP connections between the members of a bulk group.
//!
//! object → blocks → schedule → group → pieces → `[tcp]` → pieces → group → object
//!
//! [`Listener`] is where a process is found, by however many groups. [`connect_members`] joins each member of a
//! group to each other by a connection and answers when all have met. [`TcpGroupDriver`] drives one member's
//! [`onepipe_bulk::Group`] over its connections: the bytes of pieces are written from the object
//! in which they lie (`writev`) and read into the one to which they belong (`readv`).
//!
//! # Invariants
//! - No byte of a piece is copied between the object and the kernel, but at the ends of what a
//!   socket takes or gives at a time: what was begun and not taken, a piece at most.
//! - A connection that takes nothing now holds up no other.
//! - A connection that breaks is a link that is lost: nobody connects again, since an object is got
//!   from the others then.
//! - What comes is in order and whole, or the connection is ended.

#![forbid(unsafe_code)]

mod accept_thread;
mod connection;
mod driver;
mod event_fd;
mod group_state;
mod handshake;
mod inbound;
mod listener;
mod outbound;
mod rendezvous;
mod state_probe;

pub use driver::{Progress, TcpGroupDriver};
pub use group_state::GroupState;
pub use listener::Listener;
pub use rendezvous::{Rendezvous, RendezvousError, connect_members, exchange_values};

#[cfg(test)]
mod tests;
