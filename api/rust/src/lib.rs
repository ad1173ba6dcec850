//! One big pipe for programs: messages to many processes, in one order for all.
//!
//! `[scatter]` → send → switch → receive → reorder → `[recv]`
//!
//! A process joins a *fabric* and gets a [`Pipe`]. What it says at once, to however many others,
//! is a *scattering*: its messages bear one timestamp. Everybody receives everything in ascending
//! `(timestamp, sender, place in the scattering)`, so any two receivers agree on what came first,
//! without a leader, a sequencer or a round of votes. The fabric is this machine's shared memory,
//! or a network whose switches take part ([`Builder::udp`]).
//!
//! ```
//! use onepipe::{Event, Message, Pipe, ProcessId};
//! use std::time::Duration;
//!
//! // Two ends in one program here; as a rule each belongs to a process of its own.
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
//!     let Event::Message(message) = pipe.recv()? else { panic!("nothing else happens here") };
//!     assert_eq!(message.payload, text.as_bytes());
//! }
//! bob.leave()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Two ways to run
//! | | [`Pipe`] ([`Builder::join`]) | [`EmbeddedPipe`] ([`Builder::embedded`]) |
//! |---|---|---|
//! | who drives it | a thread of its own, which sleeps when there is nothing to do | the caller, by calling `turn` or `poll` often |
//! | a caller that computes for a second | costs nobody anything | acknowledges nothing meanwhile |
//! | a payload sent is copied | twice | once |
//! | a payload received is copied | once to be shown, twice to be owned; never for a callback | never |
//! | locks | to fall asleep, to wake, for counters | none |
//! | heap | a vector for each message that is owned | none |
//!
//! # What is promised (best effort)
//! | | |
//! |---|---|
//! | delivery | at most once, in the total order, nothing invented, payload intact |
//! | causality | what a process sends is later than everything it has been handed |
//! | pairs | from one sender to one receiver first in, first out, but for a scattering that waits for a window: it is stamped when it leaves, and later ones may overtake it |
//! | loss | each lost message is reported to its sender ([`Event::SendFailed`]), unless the sender dies; the others of its scattering are delivered |
//! | clocks | their errors cost latency, never order |
//! | memory | bounded by [`Config`] on both sides; a full buffer is an error value |
//!
//! # All or nothing (reliable)
//! [`Pipe::scatter_reliably`] costs a round trip more, and promises more: every receiver that does
//! not fail delivers its message, or none does, through loss and the death of whoever it is. With
//! [`Builder::controllers`] a fabric goes on after a failure: the controllers (`onepipe
//! controller`) decide who has failed, and since when. Everybody is told the same
//! ([`Event::ProcessFailed`]): nothing that the failed one sent at or above that timestamp is ever
//! delivered, all below it is; a scattering that it should have received is taken back from the
//! others, and its sender told ([`Event::SendFailed`]). Who wants to do something first
//! ([`Pipe::on_process_failed`]) does it while everybody's reliable deliveries still wait; who does
//! not care holds nobody up. A process that was itself declared failed is told so
//! ([`Event::Excluded`]), and may [`Pipe::rejoin`]. Both services run beside each other, as two
//! streams or merged into one ([`Builder::receive_mode`]).
//!
//! ```
//! use onepipe::{Event, Message, Pipe, ProcessId};
//!
//! let fabric = format!("doc-reliable-{}", std::process::id());
//! let join = |process| Pipe::builder().fabric(&fabric).process(process).join();
//! let (mut bank, mut other) = (join(0)?, join(1)?);
//! // Taken from one account and paid into another: both, or neither.
//! bank.scatter_reliably(&[
//!     Message { to: ProcessId(0), payload: b"-10" },
//!     Message { to: ProcessId(1), payload: b"+10" },
//! ])?;
//! let Event::Message(taken) = bank.recv()? else { panic!("nothing else happens here") };
//! let Event::Message(paid) = other.recv()? else { panic!("nothing else happens here") };
//! assert_eq!((&taken.payload[..], &paid.payload[..]), (&b"-10"[..], &b"+10"[..]));
//! assert_eq!(taken.timestamp, paid.timestamp);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//! The example `bank` does so over a network that loses messages, and audits itself.
//!
//! # Payloads of any size
//! A message is copied into buffers, and while it leaves nobody hears anything newer of its sender:
//! it should not be large. With [`Builder::any_size`] a payload of more than
//! [`LargeConfig::large_bytes`] travels by bulk multicast instead, and takes its place in the
//! order when it is at all its receivers. It is sent, received and reported as any other.
//!
//! ```
//! use onepipe::{Event, Message, Pipe, ProcessId};
//!
//! let fabric = format!("doc-any-size-{}", std::process::id());
//! let join = |process| Pipe::builder().fabric(&fabric).process(process).any_size().join();
//! let (mut one, mut other) = (join(0)?, join(1)?);
//! let film = vec![7; 20 << 20];
//! one.scatter_reliably(&[Message { to: ProcessId(1), payload: &film }])?;
//! let Event::Message(received) = other.recv()? else { panic!("nothing else happens here") };
//! assert!(received.payload == film);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Large objects
//! [`Transfer`] sends objects of any size in timeslots that an arbiter (`onepipe arbiter`) gives
//! out, one sender and one receiver a timeslot, so that no queue in the network fills and messages
//! stay fast beside them. It is an end of its own, not part of a pipe, and takes no part in the
//! order of messages. Who drops the [`Sending`] of an object gives it up. The example `transfer`
//! has three senders and one receiver.
//!
//! [`Group`] sends each object to many: members hand its blocks on to each other, over TCP or UDP
//! ([`GroupOptions::carrier`]), so that it takes little longer to eight than to one; files, too
//! ([`Group::send_file`]). When a member dies the survivors get from each other what they lack, and
//! a group that closes without error has brought everything to everybody. The example `group` shows
//! how. [`EmbeddedGroup`] is the same without a thread.
//!
//! # Groups that do not stall
//! A fabric holds still while a failure is decided. Agreed multicast does not: groups of members
//! (`onepipe member`) order messages by quorums, and go on while a majority of each lives. An
//! [`Amcast`] sends to one group or several, all or none, and an [`AmcastReplica`] delivers what
//! its group is sent, in the same order as all others. It has nothing to do with pipes but that the
//! machines are of one kind. The example `register` keeps a value at three replicas; `ledger` moves
//! money between two groups.
//!
//! # When something fails
//! - A *message* cannot be delivered: [`Outcome::Lost`], it was not and will not be.
//!   [`Outcome::Unknown`]: the receiver cannot be asked any more, it may have been.
//! - A *process* dies: the others go on at once where the kernel tells (shared memory), else after
//!   its link's time-out; [`Event::LinkLost`]. What it had sent is delivered where it arrived. It
//!   may come back under its id, as a new life that shares nothing with the former.
//! - A *process* leaves ([`Pipe::leave`], or drop): its messages are settled first, and nobody
//!   waits for it afterwards.
//! - A *reader* is slow: its window closes, its senders' buffers fill, [`SendError::BufferFull`].
//! - A *switch* dies: nothing is delivered until it, or another at its address, is back.
//! - A live process that is not driven, or does not run, for longer than
//!   [`Config::link_timeout_ns`] in the middle of sending is not waited for any more: what it was
//!   sending then is lost, and reported to it.
//!
//! # Not here
//! The library does not exit, print, log or catch signals: what Ctrl-C does is the application's
//! affair. Dropping a pipe is a clean end; so is being killed.

#![forbid(unsafe_code)]

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
mod node;
mod pipe_endpoint;
mod process_set;
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
    ClientStats, FcpParams, OBJECT_LEN_MIN, ObjectId, TermsMismatch, TransferError, TransferEvent,
    TransferStats,
};
pub use onepipe_base::{Incarnation, ProcessId, ScatteringId, Timestamp};
pub use onepipe_bulk::{Algorithm, Delivery, Plain, Reason};
pub use onepipe_endpoint::{
    Config, ConfigError, Links, MESSAGE_CHARGE_BYTES, Message, Outcome, ProcessFailed, ReceiveMode,
    SendError, SendFailed, Stats as EndpointStats,
};
pub use onepipe_large::{Config as LargeConfig, ConfigError as LargeConfigError};
pub use onepipe_transport_amcast::{
    Directory, DirectoryError, Loopback, OpenError as AmcastOpenError, Options as AmcastOptions,
    Role,
};
pub use onepipe_transport_bulk::{
    Carrier, GroupState, Listener, ObjectBytes, Page, PageMut, RendezvousError,
};
pub use onepipe_transport_driver::{Duty, Progress};
pub use onepipe_transport_shm::{
    AttachError, Config as SharedMemoryConfig, Stats as SharedMemoryStats,
};
pub use onepipe_transport_udp::{Config as UdpConfig, OverlayStats, Stats as UdpStats};
pub use onepipe_wire::Service;
pub use stats::{FabricStats, Stats};
pub use threaded::Pipe;
pub use transfer::{
    EmbeddedTransfer, Object, ObjectError, OpenError, Sending, Transfer, TransferBuilder,
};
