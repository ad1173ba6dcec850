//! TCP connections between the members of a bulk group.
//!
//! object → blocks → schedule → group → pieces → `[tcp]` → pieces → group → object
//!
//! [`Listener`] is where a process accepts connections, for any number of groups.
//! [`connect_members`] establishes a full mesh of connections between the members of a group and
//! returns when all have done so. [`TcpGroupDriver`] drives one member's [`onepipe_bulk::Group`]
//! over its connections: the bytes of pieces are written from their object in place (`writev`) and
//! read into their destination object (`readv`).
//!
//! # Invariants
//! - No byte of a piece is copied between the object and the kernel, except at the ends of what a
//!   socket takes or returns at a time: at most one piece is buffered.
//! - A connection whose socket is full delays no other.
//! - A connection that breaks is a lost link: no member reconnects, since a missing object comes
//!   from the survivors.
//! - Received frames are in order and intact, or the connection is closed.

#![forbid(unsafe_code)]

mod accept_thread;
mod acceptor;
mod connect;
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

pub use acceptor::ListenerStats;
pub use connect::{connect_members, exchange_values};
pub use driver::{Progress, TcpGroupDriver};
pub use group_state::GroupState;
pub use listener::Listener;
pub use rendezvous::{Rendezvous, RendezvousError};

#[cfg(test)]
mod tests;
