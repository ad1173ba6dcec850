//! Bulk multicast: one object to many receivers at the speed of one link (RDMC, DSN 2018; design:
//! bulk.md and docs/design/bulk.md).
//!
//! object → blocks → `[schedule]` → `[group]` → pieces → frames → blocks → object
//!
//! A [`Group`] is one member of a fixed list; the first of the list is the root, which sends. An
//! object is cut into blocks, a [`Schedule`] says who hands which one to whom, and relays hand on
//! what is whole. [`Groups`] are many of them over the same links. Links may be reliable or lose
//! frames. When a member fails, all are told, and the survivors get from each other what they lack.
//!
//! ```
//! use onepipe_base::{Incarnation, Machine, Mono, Now, Port, ProcessId, Timestamp};
//! use onepipe_bulk::{Config, Event, Group, GroupId, Link, Member, Outcome};
//!
//! let of = |process| Member { process: ProcessId(process), port: Port(0), link: Link::Reliable };
//! let member = |own| Config::new(GroupId(1), vec![of(3), of(8)], own, Incarnation(1));
//! let mut pair = [0, 1].map(|own| Group::new(member(own)).expect("two can"));
//! pair[0].send(b"hello".to_vec()).expect("nothing is under way");
//! pair[0].close().expect("we are the root");
//! let (mut slot, mut ns, mut received) = ([0; 1_400], 0, vec![]);
//! while pair.iter().any(|group| group.outcome().is_none()) {
//!     ns += 1_000;
//!     let now = Now { mono: Mono::from_ns(ns), sync: Timestamp::from_ns((1 << 50) + ns) };
//!     for at in [0, 1] {
//!         pair[at].handle_timeout(now);
//!         while let Some(sent) = pair[at].poll_transmit(now, &mut slot) {
//!             pair[1 - at].handle_frame(now, Port(0), &mut slot[..sent.bytes]);
//!         }
//!         while let Some(event) = pair[at].poll_event() {
//!             match event {
//!                 Event::Wanted { object, bytes } => {
//!                     pair[at].provide(object, vec![0; bytes as usize]).expect("it is wanted");
//!                 }
//!                 Event::Stable { memory, .. } => received.push(memory),
//!                 _ => {}
//!             }
//!         }
//!     }
//! }
//! assert_eq!(pair[0].outcome(), Some(Outcome::Complete));
//! assert_eq!(received, [b"hello", b"hello"], "the root's own comes back, too");
//! ```
//!
//! # Invariants
//! - A schedule is a pure function of (members, rank, blocks, step); a step takes O(log members)
//!   work. Nobody negotiates a route. Sender and receiver agree on every step, nobody sends what
//!   has not come to it in an earlier one, nobody gets a block twice, all get all, and nobody sends
//!   or receives more than one block a step.
//! - K: what is delivered is what was sent, byte for byte; [`Outcome::Complete`] at any member
//!   means that every object is whole at every member.
//! - Objects are delivered in the order of sending, each once.
//! - Every survivor learns who has failed. Each object is whole at all of them in the end, or lost
//!   to all of them.
//! - A frame says what is so, not what has changed: it may come twice, late, or behind a newer one.
//! - No allocation for a block or a frame in the steady state. No bytes from outside panic.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod bitset;
mod config;
mod event;
mod group;
mod groups;
mod memory;
mod object;
mod peer;
mod schedule;
mod session;
mod stats;

pub use config::{
    Config, ConfigError, Delivery, GroupId, Link, Member, OBJECTS_MAX, PIECE_FRONT_LEN,
};
pub use event::{Event, Failure, Outcome, Reason, SendError, Unsent};
pub use group::{Gathered, Group, Placement};
pub use groups::Groups;
pub use memory::Memory;
pub use schedule::{
    Algorithm, BLOCKS_MAX, First, MEMBERS_MAX, Plain, Schedule, ScheduleError, Transfer,
};
pub use stats::Stats;
