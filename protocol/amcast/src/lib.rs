//! Agreed multicast: delivers messages for several groups in one total order. Quorums of switches
//! decide the order, so that delivery continues when a minority of them fails (P4mCast;
//! `docs/design/amcast.md`).
//!
//! client → start → `[member: leader]` → prop → `[members: ack]` → deliver → replica
//!
//! A group has 2f + 1 [`Member`]s, one of which is the leader, and a number of [`Replica`]s. A
//! [`Client`] sends a message to the leaders of all its destination groups. Each leader proposes a
//! timestamp, a majority of the group accepts it, and the highest of the accepted timestamps is the
//! message's final timestamp, which defines the order. A [`Coordinator`] monitors the members and
//! elects another leader when one has failed.
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
//!     frame_len_max: 1_472,
//! };
//! let mut client = Client::new(Config::new(ProcessId(4), groups)).expect("it is a client");
//! let now = Now { mono: Mono::from_ns(0), sync: Timestamp::from_ns(1 << 50) };
//! let to = GroupSet::EMPTY.with(GroupId(0));
//! client.amcast(now, to, b"hello").expect("there is such a group");
//! let unknown = client.amcast(now, to.with(GroupId(7)), b"hello");
//! assert_eq!(unknown, Err(AmcastError::UnknownGroup(GroupId(7))));
//! let long = client.amcast(now, to, &[0; 1_500]).expect_err("one message is one packet");
//! assert!(long.to_string().contains("1370"));
//! ```
//!
//! # Invariants
//! - Agreement: what one replica of a group delivers, every correct replica of the group delivers.
//! - Prefix order: two replicas, of the same or of different groups, deliver the messages that both
//!   deliver in the same order.
//! - Integrity: a replica delivers a message at most once, and only if a client has sent it to the
//!   replica's group. Validity: a message of a correct client is delivered as long as a majority of
//!   each destination group is up.
//! - Genuineness: only a message's destination groups, their replicas and its client take part in
//!   its delivery.
//! - A decided log position never changes. No allocation after `new`, no access to a clock.

#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

mod ack_table;
mod barrier;
mod client;
mod config;
mod congestion;
mod coordinator;
mod epochs;
mod incarnations;
mod log;
mod member;
mod outbox;
mod replica;
mod transfer;
mod votes;

pub use client::{AmcastError, Client, ClientStats, Completed};
pub use config::{Config, ConfigError, Group, Groups, MEMBERS_MAX};
pub use coordinator::{Coordinator, CoordinatorConfig, CoordinatorStats, Decision};
pub use member::{Member, MemberEvent, MemberStats};
pub use onepipe_wire::{GROUPS_MAX, GroupId, GroupSet, LogicalTime, MessageId};
pub use replica::{Delivery, DeliveryPoint, Replica, ReplicaEvent, ReplicaStats};
