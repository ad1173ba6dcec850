//! Other ways to one total order, to compare with: machines of the same kind, driven by the same
//! worlds, over the same frames.
//!
//! A [`Rival`] is one member of a group in which everybody talks to one or to all. Below, all are
//! the same: connections that lose nothing and keep their order (`channel`), which coalesce what
//! waits for the same member. What differs is the rule by which messages are put in order
//! ([`Method`]):
//!
//! - [`Method::Unordered`]: none. What arrives is delivered: the floor for latency.
//! - [`Method::Token`]: a token with the next number goes round; who has it sends what waits.
//! - [`Method::Lamport`]: logical clocks; delivered when every other member is known to be past it.
//!   Members that have nothing to say tell their clocks once an interval, not once a message.
//! - [`Method::Sequencer`]: everything goes to one node, which numbers it and sends it on. In a
//!   switch it costs no processor; at a host it does. The machine is the same.
//!
//! - [`Method::Primcast`]: groups, whose members agree on timestamps by quorums, as PrimCast does:
//!   the rival of agreed multicast (P4mCast, figure 4). A message is for some groups
//!   ([`To::Groups`]) and heard of by their members alone.
//!
//! The others are the rivals of the evaluation of 1Pipe (section 7.2, figure 8).
//!
//! ```
//! use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Timestamp};
//! use onepipe_bench_rivals::{Config, Links, Method, Rival, To};
//!
//! let now = Now { mono: Mono::from_ns(0), sync: Timestamp::from_ns(1 << 50) };
//! let config = Config { links: Links::Mesh, ..Config::new(Method::Unordered, ProcessId(0), 2) };
//! let mut member = Rival::new(config)?;
//! member.send(now, To::All, b"to everybody")?;
//! let mine = member.poll_event().expect("a message to oneself needs no network");
//! assert_eq!((mine.from, &mine.payload[..]), (ProcessId(0), &b"to everybody"[..]));
//! let mut slot = [0; 1_472];
//! let frame = member.poll_transmit(now, &mut slot).expect("and one to the other member");
//! assert_eq!(frame.port, Port(1));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```
//!
//! # Invariants
//! - Any two members deliver the messages that both get in the same order ([`Method::Unordered`]
//!   aside), each once, whatever the network loses, repeats or reorders.
//! - What waits is bounded: [`Rival::send`] refuses more than [`Config::pending_max`].
//! - Members do not fail: none of these methods says what then.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod config;
mod connection;
mod context;
mod entry;
mod lamport;
mod order;
mod primcast;
mod rival;
mod sequencer;
mod token;

pub use config::{Config, ConfigError, Links, Method};
pub use entry::entries;
pub use onepipe_wire::{GroupId, GroupSet};
pub use rival::{Delivery, Rival, SendError, Stats, To};
