//! One big pipe for programs: messages to many processes, in one order for all.
//!
//! `[scatter]` → send → switch → receive → reorder → `[recv]`
//!
//! A process joins a *fabric* and gets a [`Pipe`]. Messages that it sends at once, to any number of
//! others, form a *scattering* and share one timestamp. Every process receives messages in
//! ascending `(timestamp, sender, index in the scattering)`, so any two receivers agree on their
//! order, without a leader, a sequencer or a round of votes. The fabric is this machine's shared
//! memory, or a network whose switches take part ([`Builder::udp`]).
//!
//! ```
//! use onepipe::{Event, Message, Pipe, ProcessId};
//! use std::time::Duration;
//!
//! // Two pipes in one program here; usually each belongs to a process of its own.
//! let fabric = format!("doc-{}", std::process::id());
//! let mut ada = Pipe::builder().fabric(&fabric).process(0).join()?;
//! let mut bob = Pipe::builder().fabric(&fabric).process(1).join()?;
//! assert!(ada.wait_for_peers(1, Duration::from_secs(30)));
//!
//! // One scattering: two messages, two receivers, one timestamp.
//! ada.scatter(&[
//!     Message { to: ProcessId(0), payload: b"a note" },
//!     Message { to: ProcessId(1), payload: b"a letter" },
//! ])?;
//! for (pipe, text) in [(&mut ada, "a note"), (&mut bob, "a letter")] {
//!     let Event::Message(message) = pipe.recv()? else { panic!("expected a message") };
//!     assert_eq!(message.payload, text.as_bytes());
//! }
//! bob.leave()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Two ways to run
//! | | [`Pipe`] ([`Builder::join`]) | [`EmbeddedPipe`] ([`Builder::embedded`]) |
//! |---|---|---|
//! | driven by | the caller while it waits, else by a thread of its own, which sleeps when there is nothing to do | the caller, by calling `turn` or `poll` often |
//! | a caller that computes for a second | delays no other process | acknowledges nothing meanwhile |
//! | copies of a payload sent | one | one |
//! | copies of a payload received | one to borrow it, two to own it | none |
//! | locks | one for each call | none |
//! | allocations | one vector per owned message | none |
//!
//! # Guarantees of best effort
//! | | |
//! |---|---|
//! | delivery | at most once, in the total order, with the payload that was sent |
//! | causality | a message is ordered after everything delivered to its sender before |
//! | pairs | FIFO from one sender to one receiver, except that a scattering that waits for a flow-control window is stamped when it leaves, and later ones may overtake it |
//! | loss | each lost message is reported to its sender ([`Event::SendFailed`]), unless the sender dies; the other messages of its scattering are delivered |
//! | clocks | clock errors cost latency, never order |
//! | memory | bounded by [`Config`] on both sides; a full buffer is an error value |
//!
//! # All or nothing: the reliable service
//! [`Pipe::scatter_reliably`] costs one more round trip and guarantees that every receiver that
//! does not fail delivers its message, or none does, through loss and failures of any process. With
//! [`Builder::controllers`] a fabric goes on after a failure: the controllers (`onepipe
//! controller`) decide which process has failed, and since when. All processes receive the same
//! decision ([`Event::ProcessFailed`]): of the failed process nothing at or above that timestamp is
//! ever delivered, everything below it is; a scattering that it should have received is recalled
//! from its other receivers, and its sender is notified ([`Event::SendFailed`]). An application
//! that must act first ([`Pipe::on_process_failed`]) does so while reliable deliveries of all
//! processes still wait; without a callback nothing waits. A process that was itself declared
//! failed is notified ([`Event::Excluded`]), and may [`Pipe::rejoin`]. Both services run side by
//! side, as two streams or merged into one ([`Builder::receive_mode`]).
//!
//! ```
//! use onepipe::{Event, Message, Pipe, ProcessId};
//!
//! let fabric = format!("doc-reliable-{}", std::process::id());
//! let join = |process| Pipe::builder().fabric(&fabric).process(process).join();
//! let (mut bank, mut other) = (join(0)?, join(1)?);
//! // A withdrawal from one account and a deposit to another: both, or neither.
//! bank.scatter_reliably(&[
//!     Message { to: ProcessId(0), payload: b"-10" },
//!     Message { to: ProcessId(1), payload: b"+10" },
//! ])?;
//! let Event::Message(taken) = bank.recv()? else { panic!("expected a message") };
//! let Event::Message(paid) = other.recv()? else { panic!("expected a message") };
//! assert_eq!((&taken.payload[..], &paid.payload[..]), (&b"-10"[..], &b"+10"[..]));
//! assert_eq!(taken.timestamp, paid.timestamp);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//! The example `bank` does so over a network that loses messages, and audits the result.
//!
//! # Payloads of any size
//! A message is copied into buffers, and while it is being sent it delays all newer messages of its
//! sender: it should not be large. With [`Builder::any_size`] a payload of more than
//! [`LargeConfig::large_threshold_bytes`] travels by bulk multicast instead, and takes its position
//! in the order when all its receivers have it. It is sent, received and reported as any other.
//!
//! ```
//! use onepipe::{Event, Message, Pipe, ProcessId};
//!
//! let fabric = format!("doc-any-size-{}", std::process::id());
//! let join = |process| Pipe::builder().fabric(&fabric).process(process).any_size().join();
//! let (mut one, mut other) = (join(0)?, join(1)?);
//! let film = vec![7; 20 << 20];
//! one.scatter_reliably(&[Message { to: ProcessId(1), payload: &film }])?;
//! let Event::Message(received) = other.recv()? else { panic!("expected a message") };
//! assert!(received.payload == film);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Memory of other processes
//! A process may register regions of its memory ([`Pipe::register`]). Others read and write them
//! and execute atomic operations on them ([`Pipe::remote`], [`Pipe::execute`]), in the total order,
//! without the application of the owner: see the module [`memory`], and the example of that name.
//!
//! # Large objects
//! [`Transfer`] sends objects of any size in timeslots granted by an arbiter (`onepipe arbiter`),
//! one sender and one receiver per timeslot, so that no queue in the network fills and the latency
//! of messages stays low. A transfer endpoint is independent of pipes, and its objects take no part
//! in the order of messages. Dropping the [`Sending`] of an object cancels it. The example
//! `transfer` has three senders and one receiver.
//!
//! [`Group`] sends each object to many receivers: members relay its blocks to each other, over TCP,
//! UDP or shared memory ([`GroupOptions::carrier`]), so that sending to eight takes little longer
//! than sending to one; files, too ([`Group::send_file`]). When a member dies the survivors get
//! missing blocks from each other, and a group that closes without error has delivered everything
//! to all members. See the example `group`. [`EmbeddedGroup`] is the same without a thread.
//!
//! # Groups that do not stall
//! A fabric stalls while a failure is decided. Agreed multicast does not: groups of members
//! (`onepipe member`) order messages by quorums, and go on while a majority of each is alive. An
//! [`Amcast`] client sends to one or several groups, all or none, and an [`AmcastReplica`] delivers
//! the messages of its group, in the same order as all others. It is independent of pipes. The
//! example `register` replicates a value on three replicas; `accounts` moves money between two
//! groups.
//!
//! # Failures
//! - A *message* cannot be delivered: [`Outcome::Lost`] says that it was not and will not be;
//!   [`Outcome::Unknown`], that it may have been, as the receiver does not respond any more.
//! - A *process* dies: the others go on at once where the kernel reports the death (shared memory),
//!   else after the timeout of its link; [`Event::LinkLost`]. What it had sent is delivered where
//!   it arrived. It may rejoin under its id as a new incarnation, which shares no state with the
//!   previous one.
//! - A *process* leaves ([`Pipe::leave`], or drop): the outcomes of its messages are resolved
//!   first, and no process waits for it afterwards.
//! - A *reader* is slow: its window closes, its senders' buffers fill, [`SendError::BufferFull`].
//! - A *switch* dies: nothing is delivered until it, or another at its address, is back.
//! - A live process that is not driven or not scheduled for longer than [`Config::link_timeout_ns`]
//!   in the middle of sending is treated as failed: what it was sending is lost and reported to it.
//!
//! # Not in this crate
//! The library does not exit, print, log or catch signals: handling Ctrl-C is up to the
//! application. Dropping a pipe is a clean end; so is being killed.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod agreed;
mod amcast;
mod builder;
mod deadline;
mod embedded;
mod engine;
mod error;
mod event;
mod graceful_leave;
mod group;
mod idle;
pub mod memory;
mod node;
mod pipe_endpoint;
mod process_set;
mod rest;
mod stats;
mod threaded;
mod transfer;

pub use amcast::{Amcast, AmcastReplica, StateTransferRequired, WaitError};
pub use builder::Builder;
pub use embedded::EmbeddedPipe;
pub use error::{JoinError, LeaveError, ReceiveError};
pub use event::{Event, Link, Received};
pub use group::{
    EmbeddedGroup, FileError, FileProgress, FileReport, FileSource, Group, GroupEnd, GroupError,
    GroupObject, GroupOptions, GroupProgress, GroupSendError, MemberFailure,
};
pub use idle::Idle;
pub use onepipe_amcast::{
    AmcastError, ClientStats as AmcastStats, Completed, DeliveryPoint, GroupId, LogicalTime,
    MessageId, ReplicaStats,
};
pub use onepipe_arbiter::{
    ClientStats, FcpParams, OBJECT_LEN_MIN, ObjectId, ParamsMismatch, TransferError, TransferEvent,
    TransferStats,
};
pub use onepipe_base::{Incarnation, ProcessId, ScatteringId, Timestamp};
pub use onepipe_bulk::{Algorithm, Delivery, Plain, Reason};
pub use onepipe_endpoint::{
    Config, ConfigError, FailureReason, Links, MESSAGE_CHARGE_BYTES, Message, OpenScattering,
    Outcome, ProcessFailed, ProcessLeft, ReceiveMode, SendError, SendFailed,
    Stats as EndpointStats,
};
pub use onepipe_large::{Config as LargeConfig, ConfigError as LargeConfigError};
pub use onepipe_transport_amcast::{
    Directory, DirectoryError, Loopback, OpenError as AmcastOpenError, Options as AmcastOptions,
    Role,
};
pub use onepipe_transport_bulk::{
    Carrier, GroupState, Listener, ListenerStats, ObjectBytes, Page, PageMut, RendezvousError,
};
pub use onepipe_transport_driver::{Doorbell, Duty, Idleness, Progress};
pub use onepipe_transport_shm::{
    AttachError, Config as SharedMemoryConfig, SegmentLost, Stats as SharedMemoryStats,
};
pub use onepipe_transport_udp::{
    Config as UdpConfig, JoinFailure, Mismatch, OverlayStats, Stats as UdpStats, TermsChange,
};
pub use onepipe_wire::{RefuseReason, Service};
pub use rest::Rest;
pub use stats::{FabricStats, Stats};
pub use threaded::{Events, Pipe};
pub use transfer::{
    EmbeddedTransfer, Object, ObjectError, OpenError, Sending, Transfer, TransferBuilder,
};
