//! A replicated log that is written in one round trip, without a leader.
//!
//! A client sends an entry in one best-effort scattering to all replicas. Each replica adds what it
//! receives in the order of timestamps, stores it, and replies with a checksum of its log up to
//! there. Equal checksums of all replicas say that their logs are equal up to this entry: then the
//! entry is *committed*. Best effort may lose an entry on its path to some of the replicas. These
//! refuse what the client appends behind, the checksums differ, and the client repairs their logs.
//!
//! What a client cannot repair, because the client or a replica has ended, is left to a *cut*: all
//! members of a [`View`] state by reliable scatterings what they have, and the next view begins
//! with what all of them have. The reliable service delivers these statements in one order to all,
//! so that all compute the same cut.
//!
//! [`LogClient`] and [`LogReplica`] are sans-IO machines: their drivers give them the time, send
//! and receive their messages, and store the replicas' records. The reasons stand in
//! `docs/design/log.md`.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod base;
mod checkpoint;
mod client;
mod cut;
mod entries;
mod entry;
mod executor;
mod founding;
mod message;
mod record;
mod replica;
mod scattering;
mod start;
mod state;
mod state_message;
mod view;

pub use base::Base;
pub use client::{AppendError, ClientOptions, Committed, LogClient};
pub use cut::{Cut, Statement};
pub use entry::{Entry, EntryId, Position, Session};
pub use executor::Executor;
pub use founding::{Founding, FoundingError, OwnLog, StoredLog};
pub use message::{
    Applied, Entries, Header, ReadState, Reply, ReplyKind, Request, StatePart, Status,
};
pub use record::{Change, Record};
pub use replica::{
    Install, LogReplica, ReplicaOptions, ReplicaStats, RestoreError, StateRead, Stored,
};
pub use scattering::{Scattering, ScatteringKind};
pub use start::{Founders, LogStart, StartMessage, StartPhase};
pub use state::{NoState, Part, PartRequest, State};
pub use state_message::StateMessage;
pub use view::{REPLICAS_MAX, View};
