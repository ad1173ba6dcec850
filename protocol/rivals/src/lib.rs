//! Baselines: other methods of totally ordered broadcast and multicast, as machines that run in the
//! same environments and use the same frames.
//!
//! A [`Rival`] is one member of a group whose members send to one member or to all. All methods
//! share reliable, ordered connections (`connection`), which coalesce messages to the same member.
//! They differ in how messages are ordered ([`Method`]):
//!
//! - [`Method::Unordered`]: messages are delivered on arrival. The lower bound of latency.
//! - [`Method::Token`]: a token with the next sequence number circulates; its holder sends.
//! - [`Method::Lamport`]: logical clocks; a message is delivered when all members' clocks have
//!   passed it. Idle members advertise their clocks once per interval, not once per message.
//! - [`Method::Sequencer`]: one node numbers and forwards all messages. In a switch it costs no CPU
//!   time, at a host it does; the machine is the same.
//! - [`Method::Primcast`]: groups whose members agree on timestamps by quorums (PrimCast): the
//!   baseline for agreed multicast (P4mCast, figure 4). A message has destination groups
//!   ([`To::Groups`]), and only their members receive it.
//!
//! The other methods are the baselines in the evaluation of 1Pipe (section 7.2, figure 8).
//!
//! ```
//! use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Timestamp};
//! use onepipe_rivals::{Config, Links, Method, Rival, To};
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
//! - Any two members deliver the messages that both receive in the same order (except with
//!   [`Method::Unordered`]), each once, despite loss, duplication and reordering.
//! - Queues are bounded: [`Rival::send`] refuses more than [`Config::pending_max`] messages.
//! - Members are assumed not to fail.

#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

mod config;
mod connection;
mod context;
mod entry;
mod lamport;
mod message;
mod order;
mod primcast;
mod rival;
mod sequencer;
mod token;

pub use config::{Config, ConfigError, Links, Method};
pub use entry::entries;
pub use message::{Delivery, To};
pub use onepipe_wire::{GroupId, GroupSet};
pub use rival::{Rival, SendError, Stats};
