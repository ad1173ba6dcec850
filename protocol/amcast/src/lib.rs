//! Agreed multicast: messages for several groups in one order, decided by quorums of switches, so
//! that nothing stalls when some of them die (P4mCast; design: amcast.md).
//!
//! client → start → `[member: leader]` → prop → `[members: ack]` → deliver → replica
//!
//! Each group has 2f + 1 [`Member`]s, of which one leads, and its [`Replica`]s. A [`Client`] asks
//! the leaders of all groups that a message is for. Each proposes a timestamp, a majority of its
//! group takes it, and the highest of them is the message's place in the order. A [`Coordinator`]
//! watches the members and names another leader when one has died.
//!
//! ```
//! use onepipe_amcast::{AmcastError, Client, Config, Group, GroupId, GroupSet, Groups};
//! use onepipe_base::{Mono, Now, ProcessId, Timestamp};
//!
//! let members = [0, 1, 2].map(ProcessId).to_vec();
//! let group = Group { members, replicas: vec![ProcessId(3)] };
//! let clients = vec![ProcessId(4)];
//! let groups = Groups {
//!     groups: vec![group],
//!     clients,
//!     window: 8,
//!     message_groups_max: 2,
//!     frame_octets_max: 1_472,
//! };
//! let mut client = Client::new(Config::new(ProcessId(4), groups)).expect("it is a client");
//! let now = Now { mono: Mono::from_ns(0), sync: Timestamp::from_ns(1 << 50) };
//! let to = GroupSet::EMPTY.with(GroupId(0));
//! client.amcast(now, to, b"hello").expect("there is such a group");
//! let unknown = client.amcast(now, to.with(GroupId(7)), b"hello");
//! assert_eq!(unknown, Err(AmcastError::UnknownGroup(GroupId(7))));
//! let long = client.amcast(now, to, &[0; 1_500]).expect_err("one message is one packet");
//! assert!(long.to_string().contains("1356"));
//! ```
//!
//! # Invariants
//! - Agreement: what one replica of a group delivers, every one does that lives on.
//! - Prefix order: two replicas, of whichever groups, deliver what both deliver in the same order.
//! - Integrity: once, and only what a client has sent to its group. Validity: what a client that
//!   lives on has sent is delivered while majorities live.
//! - Genuineness: of a message, only its groups, their replicas and its client hear.
//! - A decided position of a log never changes. No allocation after `new`, no clock.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod barrier;
mod client;
mod config;
mod coordinator;
mod flight;
mod log;
mod member;
mod outbox;
mod patience;
mod replica;
mod stage;
mod taken;
mod votes;

pub use client::{AmcastError, Client, ClientStats, Over};
pub use config::{Config, ConfigError, Group, Groups, MEMBERS_MAX};
pub use coordinator::{Coordinator, CoordinatorConfig, CoordinatorStats, Decision};
pub use member::{Member, MemberEvent, MemberStats};
pub use onepipe_wire::{GROUPS_MAX, GroupId, GroupSet, LogicalTime, MessageId};
pub use replica::{Delivery, DeliveryPoint, Replica, ReplicaEvent, ReplicaStats};
