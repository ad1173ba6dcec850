//! Registered memory: other processes read and write regions of a process without its application.
//!
//! A process *registers* a region of its memory, and states who may read it, write it, and execute
//! atomic operations on it. Others then operate on the region by [`RemoteRegion`], or by requests
//! of several operations on several owners ([`Pipe::execute`]). The owner's pipe executes them, in
//! the thread that drives the pipe: its application neither sees nor delays them. All operations
//! are executed in the total order of the fabric, so any two owners execute the operations of any
//! two clients in one order, and a client that has seen a value never sees an older one later.
//!
//! ```
//! use onepipe::memory::{Operation, Outcome, RegionId, Rights};
//! use onepipe::{Pipe, ProcessId};
//!
//! let fabric = format!("doc-memory-{}", std::process::id());
//! let join = |process| Pipe::builder().fabric(&fabric).process(process).join();
//! let (mut owner, mut other, mut client) = (join(0)?, join(1)?, join(2)?);
//! const COUNTERS: RegionId = RegionId(7);
//! owner.register(COUNTERS, vec![0; 64], Rights::all())?;
//! other.register(COUNTERS, vec![0; 64], Rights::all())?;
//!
//! // One operation. `owner` does nothing for it.
//! let mut counters = client.remote(ProcessId(0), COUNTERS);
//! assert_eq!(counters.fetch_add(8, 5)?, 0);
//! assert_eq!(counters.read(8, 8)?, 5u64.to_le_bytes());
//!
//! // Several operations on two owners: all at one timestamp.
//! let add = Operation::FetchAdd { region: COUNTERS, offset: 8, addend: 1 };
//! let answers = client.execute(&[(ProcessId(0), &[add]), (ProcessId(1), &[add])])?;
//! let executed: Vec<_> = answers.into_iter().map(|(_, answer)| answer).collect::<Result<_, _>>()?;
//! assert_eq!(executed[0].outcomes, [Outcome::Added { previous: 5 }]);
//! assert_eq!(executed[0].at, executed[1].at);
//!
//! // The owner's application has its region, too.
//! let first = owner.with_region(COUNTERS, |bytes| bytes[8])?;
//! assert_eq!(first, 6);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Guarantees
//! - *Order.* Requests that write, or that have several owners, are reliable scatterings: all
//!   owners execute them, in one order and each once, or none does. A request that only reads from
//!   one owner is a best-effort message, and is executed when the owner's commit barrier has passed
//!   its timestamp. All operations are linearizable. Requests of one client that are in flight at
//!   the same time are executed in any order: what must come later is submitted after the
//!   completion, or stands behind in the same batch.
//! - *Owner's order.* [`Pipe::request_in_owner_order`] has the owner execute a batch when it is
//!   delivered, once, in an order of its own: without the wait for a commit. A region to which all
//!   requests come so is linearizable; copies of a region at several owners need the total order.
//! - *Batches.* The operations for one owner in one request are executed together, or refused
//!   together. A compare-and-swap that fails ends its batch: those that follow are
//!   [`Outcome::Skipped`].
//! - *Loss.* What is lost is repeated, and executed once. If an owner has ended, or has not
//!   answered for [`ClientOptions::give_up_ns`] (default 10 s), the outcome is unknown.
//! - *Bounds and rights* are checked by the owner, for the process that a message names as its
//!   sender. Frames are not authenticated: rights protect from mistakes, not from an attacker in
//!   the network.
//!
//! # What the owner's application must know
//! - Operations are executed while the pipe is driven: a [`Pipe`] always is; an
//!   [`EmbeddedPipe`](crate::EmbeddedPipe) must call
//!   [`poll`](crate::EmbeddedPipe::poll), as [`turn`](crate::EmbeddedPipe::turn) executes nothing.
//! - What the application writes into its own region has no timestamp: it comes between two
//!   batches. A compare-and-swap of the application among those of others is a request to its own
//!   process.
//! - Requests share the flow-control windows of messages. If the application does not receive its
//!   messages and they fill the receive buffer, requests wait, too.
//! - A region exists as long as the pipe, and ends with [`Pipe::deregister`]. After a failure, a
//!   process that rejoins registers its regions again.
//!
//! # Lengths
//! A read or write is limited by the longest message, 16 MiB by default
//! ([`Config::message_len_max`](crate::Config::message_len_max)), or
//! [`LargeConfig::object_len_max`](crate::LargeConfig::object_len_max) with
//! [`Builder::any_size`](crate::Builder::any_size) at both processes.

mod error;
mod options;
mod remote;
mod service;

pub use error::{OperationError, RegionError, RequestError};
pub use onepipe_memory::{
    ClientOptions, ClientStats, Completed, Executed, MemoryError, OPERATIONS_MAX, Operation,
    Outcome, OwnerOptions, OwnerStats, Processes, Reason, Refusal, RegionId, RequestId, Rights,
    SubmitError, WORD_LEN,
};
pub use options::{MemoryOptions, MemoryStats};
pub use remote::RemoteRegion;
pub(crate) use service::MemoryService;

use onepipe_base::ProcessId;

#[cfg(doc)]
use crate::Pipe;

/// The answer of each owner of a request, in the order of its batches.
pub type Answers = Vec<(ProcessId, Result<Executed, MemoryError>)>;
