//! Registered memory: operations of other processes on regions of their owner, in timestamp order.
//!
//! `client → [request] → scattering → owner → [reply] → message → client`
//!
//! A process *registers* a [`Region`] of its memory, and thereby becomes its owner. Others execute
//! [`Operation`]s on the region: reads, writes, compare-and-swaps and fetch-and-adds. Operations
//! for one owner form a *batch*, which is one message. A *request* has batches for one or several
//! owners. What the application of an owner does has no influence: [`MemoryOwner`] executes the
//! batches where they are delivered.
//!
//! Requests that write are reliable scatterings. So all owners execute them in one order, each
//! exactly once, and all owners of a request or none. A batch that only reads, for one owner, is a
//! best-effort message, and is executed when the owner's commit barrier is above its timestamp.
//! Thereby all operations are linearizable. A batch may instead be executed in the order of its
//! owner alone ([`MemoryClient::submit_in_owner_order`]), which costs no wait for a commit. The
//! reasons stand in `docs/design/memory.md`.
//!
//! ```
//! use onepipe_base::{Mono, ProcessId, Timestamp};
//! use onepipe_memory::{
//!     ClientOptions, MemoryClient, MemoryOwner, Operation, Outcome, OwnerOptions, Region,
//!     RegionId, Rights,
//! };
//!
//! let (now, at) = (Mono::from_ns(0), Timestamp::from_ns(1 << 50));
//! let mut owner = MemoryOwner::new(OwnerOptions::default());
//! owner.register(RegionId(1), Region::new(vec![0; 64], Rights::all())).expect("no such region");
//!
//! let mut client = MemoryClient::new(1, ClientOptions::default());
//! let add = Operation::FetchAdd { region: RegionId(1), offset: 8, addend: 5 };
//! client.submit(&[(ProcessId(0), &[add, add])]).expect("a sound request");
//! let scattering = client.poll_scattering(now).expect("a request");
//! // The fabric delivers the message to the owner, and its reply to the client.
//! owner.on_message(scattering.is_reliable, at, ProcessId(7), &scattering.messages[0].1);
//! let reply = owner.poll_reply().expect("a reply");
//! client.on_message(now, ProcessId(0), &reply.payload);
//! let completed = client.poll_completed().expect("the only owner has replied");
//! let executed = completed.answers[0].1.as_ref().expect("executed");
//! assert_eq!(executed.outcomes, [Outcome::Added { previous: 0 }, Outcome::Added { previous: 5 }]);
//! ```
//!
//! # Invariants
//! - No bytes from outside cause a panic: a message that is no request is counted, and a request
//!   that is not allowed is refused with a reason.
//! - A batch that is refused has changed nothing.
//! - An owner executes a request of a session that writes once, however often its client repeats
//!   it, in either order.
//! - This crate knows nothing of endpoints, and its machines have no clock.

#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

mod client;
mod codec;
mod operation;
mod owner;
mod region;
mod reply;
mod request;

pub use client::{
    ClientOptions, ClientStats, Completed, Executed, MemoryClient, MemoryError, OutgoingScattering,
    RequestId, SubmitError,
};
pub use operation::{OPERATIONS_MAX, Operation, Outcome, RegionId, WORD_LEN};
pub use owner::{MemoryOwner, OutgoingReply, OwnerOptions, OwnerStats, RegisterError};
pub use region::{Processes, Region, Rights};
pub use reply::{Reason, Refusal, Reply};
pub use request::{Order, Request, is_memory_message};
