//! Bulk multicast: sends an object to many receivers at the rate of one link (RDMC, DSN 2018;
//! `docs/design/bulk.md`).
//!
//! object → blocks → `[schedule]` → `[group]` → pieces → frames → blocks → object
//!
//! A [`Group`] is one member of a fixed list; the first member is the root, which sends. An object
//! is cut into blocks. A [`Schedule`] determines which member sends which block to which other one,
//! and members relay complete blocks. [`Groups`] runs several groups over the same links. Links may
//! be reliable or lossy. When a member fails, all others are notified, and the survivors request
//! missing blocks from each other.
//!
//! ```
//! use onepipe_base::{Incarnation, Machine, Mono, Now, Port, ProcessId, Timestamp};
//! use onepipe_bulk::{Config, Event, Group, GroupId, Link, Member, Outcome};
//!
//! let of = |process| Member { process: ProcessId(process), port: Port(0), link: Link::Reliable };
//! let member = |own| Config::new(GroupId(1), vec![of(3), of(8)], own, Incarnation(1));
//! let mut pair = [0, 1].map(|own| Group::new(member(own)).expect("two members are valid"));
//! pair[0].send(b"hello".to_vec()).expect("no object is in flight");
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
//!                 Event::Announced { object, bytes } => {
//!                     pair[at].provide(object, vec![0; bytes as usize]).expect("just announced");
//!                 }
//!                 Event::Stable { memory, .. } => received.push(memory),
//!                 _ => {}
//!             }
//!         }
//!     }
//! }
//! assert_eq!(pair[0].outcome(), Some(Outcome::Complete));
//! assert_eq!(received, [b"hello", b"hello"], "the root gets its memory back, too");
//! ```
//!
//! # Invariants
//! - A schedule is a pure function of (members, rank, blocks, step); a step takes O(log members)
//!   work, and no route is negotiated. Sender and receiver agree on every step. A member only sends
//!   blocks that it received in an earlier step, receives no block twice, receives every block, and
//!   sends and receives at most one block per step.
//! - Integrity: a delivered object is byte for byte what was sent; [`Outcome::Complete`] at any
//!   member means that every object is complete at every member.
//! - Objects are delivered in the order of sending, each once.
//! - Every survivor learns which members have failed. In the end, each object is complete at all
//!   survivors or lost to all of them.
//! - Control frames carry state, not changes: duplicates and reordering do no harm.
//! - No allocation per block or frame in the steady state. No input causes a panic.

#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

mod config;
mod control_queue;
mod event;
mod group;
mod groups;
mod memory;
mod object;
mod object_flow;
mod peer;
mod schedule;
mod session;
mod stats;
mod transfers;

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
