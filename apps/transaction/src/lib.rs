//! Transactions over shards and replicas in the total order, without locks, aborts or leaders.
//!
//! A transaction is a set of independent *parts*, one for each shard that it concerns: the input of
//! one does not depend on the output of another. A client sends all parts at once, in one
//! scattering to all replicas of these shards, so that they share one timestamp. Every replica
//! executes what it receives in the total order. So all replicas of a shard have the same state
//! after each transaction, and all transactions take place in one order on all shards.
//!
//! | | sent by | executed | guarantees |
//! |---|---|---|---|
//! | write | a reliable scattering to all replicas | when it is delivered | strictly serializable |
//! | strict read | best effort, to one replica of each shard | when the commit barrier has passed its timestamp | strictly serializable |
//! | snapshot read | best effort, to one replica of each shard | when the commit barrier is at or above the client's | serializable; sees the client's own writes |
//!
//! [`Client`] and [`Replica`] are sans-IO machines: their drivers give them the time, and send and
//! receive their messages. The application implements [`State`]: what a shard stores, and how a
//! part is executed. The reasons stand in `docs/design/transactions.md`.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod catch_up;
mod client;
mod codec;
mod feed;
mod kind;
mod members;
mod open_transaction;
mod placement;
mod reads;
mod recovery;
mod replica;
mod reply;
mod request;
mod roles;
mod safe_point;
mod scattering;
mod sessions;
mod start;
mod state;

pub use catch_up::CatchUpOptions;
pub use client::{
    Client, ClientOptions, ClientStats, Committed, Finished, OutgoingScattering, SubmitError,
    TransactionError, TransactionId,
};
pub use codec::{Reader, Writer};
pub use kind::{Kind, ReadMode};
pub use members::Members;
pub use placement::{Placement, PlacementError, REPLICAS_MAX};
pub use recovery::{Log, Position, Record, complete};
pub use replica::{ImageHeader, OutgoingReply, Replica, ReplicaOptions, ReplicaStats};
pub use reply::{Answer, Reply};
pub use request::{PARTS_MAX, Request, RequestKind};
pub use roles::{LogSummary, LostShard, Role, Roles};
pub use scattering::ReplicaScattering;
pub use sessions::SESSION_WINDOW;
pub use start::{OwnLog, Phase, Start};
pub use state::{Exact, State};
