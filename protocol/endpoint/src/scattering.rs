//! The API's data types: messages, errors, events.

use onepipe_base::{Cause, Incarnation, Port, ProcessId, ScatteringId, Timestamp};
use onepipe_wire::Service;

use crate::arena::PayloadRef;

/// Bytes that a message is charged in a buffer or a window in addition to its payload. They account
/// for its bookkeeping, so that empty messages are bounded, too.
pub const MESSAGE_CHARGE_BYTES: u32 = 64;

/// One message of a scattering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Message<'a> {
    /// The destination; may be the sender itself.
    pub to: ProcessId,
    /// Payload, 0 to `message_len_max` bytes.
    pub payload: &'a [u8],
}

/// Why a scattering was refused. A refused scattering is refused as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The send buffer is full; retry when messages have been sent.
    #[error("the send buffer is full: {need} bytes needed, {free} free")]
    BufferFull {
        /// Bytes that the scattering needs, per-message charges included.
        need: usize,
        /// Free bytes.
        free: usize,
    },
    /// The scattering exceeds the whole send buffer.
    #[error("the scattering needs {need} bytes of send buffer, which has {max}")]
    ScatteringTooLarge {
        /// Bytes that the scattering needs, per-message charges included.
        need: usize,
        /// Size of the send buffer.
        max: usize,
    },
    /// A message is longer than `message_len_max`.
    #[error("message {index} has {len} bytes, more than {max}")]
    MessageTooLarge {
        /// Index of the message in the scattering.
        index: usize,
        /// Length of the payload in bytes.
        len: usize,
        /// `message_len_max`.
        max: u32,
    },
    /// A destination is not below `processes_max`.
    #[error("message {index} is for process {process}, but ids lie below {max}")]
    UnknownProcess {
        /// Index of the message in the scattering.
        index: usize,
        /// The destination.
        process: u32,
        /// `processes_max`.
        max: u32,
    },
    /// The scattering has no message, or more than 65,535.
    #[error("a scattering has 1 to 65535 messages, not {0}")]
    Count(usize),
    /// The endpoint has left the fabric.
    #[error("this process has left the fabric")]
    Left,
    /// The endpoint was declared failed: the process can rejoin only with a new incarnation.
    #[error("this process was declared failed; restart it with a new incarnation")]
    Excluded,
}

/// An event for the application.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Event {
    /// The next message in the total order, or one without an order. Its payload stays in the
    /// receive buffer until [`crate::Endpoint::release`].
    Delivered(Delivery),
    /// A message that this process has acknowledged and cannot deliver, because it leaves before
    /// the barrier has passed the message: see [`crate::Endpoint::hand_back`]. Its sender counts it
    /// as delivered; other receivers of a reliable scattering may deliver theirs. Must be released
    /// as a delivery.
    Undelivered(Delivery),
    /// A message will not be delivered, or its outcome cannot be known.
    SendFailed(SendFailed),
    /// No frame arrived on this link for `link_timeout_ns`: the barrier advances without it.
    LinkLost(Port),
    /// A process has failed: none of its reliable scatterings at or above the failure timestamp is
    /// ever delivered, all below it are. If it still runs, it may have delivered messages at or
    /// above that timestamp, its own to itself among them: those deliveries are void, and the other
    /// processes go on as if they had not happened. Deliveries of the reliable service resume when
    /// every correct process has called [`crate::Endpoint::on_failure_handled`].
    ProcessFailed(ProcessFailed),
    /// A process has left gracefully: of its reliable scatterings, those below the timestamp are
    /// delivered, and there are none above. Needs no answer.
    ProcessLeft(ProcessLeft),
    /// This process was declared failed or was cut off. It is no longer a member and can rejoin
    /// only with a new incarnation.
    Excluded(Timestamp),
    /// After [`crate::Endpoint::recover`]: every reliable message below this timestamp that is to
    /// be delivered has been delivered.
    Recovered(Timestamp),
}

/// A process that has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessFailed {
    /// The failed process.
    pub process: ProcessId,
    /// The last failed incarnation; all earlier ones have failed, too.
    pub incarnation: Incarnation,
    /// Failure timestamp.
    pub at: Timestamp,
    /// Why the process counts as failed.
    pub cause: Cause,
}

/// A process that has left gracefully.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessLeft {
    /// The process.
    pub process: ProcessId,
    /// The last incarnation that has ended; all earlier ones have ended, too.
    pub incarnation: Incarnation,
    /// Timestamp of its end.
    pub at: Timestamp,
}

/// A delivered message at its position in the total order `(timestamp, from, index)`, unless it was
/// sent without an order. Not `Copy`, because it must be released exactly once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Delivery {
    /// Service that it was sent with.
    pub service: Service,
    /// Timestamp of its scattering.
    pub timestamp: Timestamp,
    /// The process that sent it.
    pub from: ProcessId,
    /// Index in its scattering.
    pub index: u16,
    /// Length in bytes.
    pub len: u32,
    /// Whether messages with lower timestamps may be delivered later: see
    /// [`crate::Endpoint::send_unordered`].
    pub is_unordered: bool,
    /// Position in the receive buffer.
    pub(crate) buffered: BufferedMessage,
}

/// Position of a message in the receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BufferedMessage {
    pub payload_ref: PayloadRef,
    /// Generation of its sender, so that messages of a previous incarnation do not count against
    /// the window of the current one.
    pub generation: u16,
    pub is_reserved: bool,
}

/// Report of a message of this process that was not, or may not have been, delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SendFailed {
    /// Service that it was sent with; each service numbers its scatterings.
    pub service: Service,
    /// Scattering that it belongs to.
    pub scattering: ScatteringId,
    /// Index in its scattering.
    pub index: u16,
    /// The process that it was sent to.
    pub to: ProcessId,
    /// Timestamp, if it was ever sent.
    pub timestamp: Option<Timestamp>,
    /// Whether it was lost for certain.
    pub outcome: Outcome,
    /// Why the message failed.
    pub reason: FailureReason,
}

/// Outcome of a message that was not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The receiver did not and will not deliver it.
    Lost,
    /// The receiver is unreachable or has restarted: it may or may not have delivered it.
    Unknown,
}

/// Why a message was not, or may not have been, delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureReason {
    /// A receiver has rejected a message of the scattering: a packet was lost, or arrived behind
    /// the barrier, or the receiver leaves.
    Rejected,
    /// The receiver does not answer.
    NoAnswer,
    /// The receiver has failed, left or restarted.
    ReceiverFailed,
    /// No process with the receiver's id has ever answered this process.
    NeverJoined,
    /// No controller resolves failures: a receiver does not answer and may have failed, or no
    /// controller has registered this process.
    NoController,
    /// The switch sends no commit barrier, without which no reliable message may be sent.
    NoCommitBarrier,
    /// The message exceeds what its receiver reserves.
    TooLarge,
    /// The application has cancelled the scattering.
    Cancelled,
    /// This process itself was declared failed.
    Excluded,
}

impl core::fmt::Display for FailureReason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Rejected => "rejected by a receiver",
            Self::NoAnswer => "the receiver does not answer",
            Self::ReceiverFailed => "the receiver has failed, left or restarted",
            Self::NeverJoined => "the receiver has never joined",
            Self::NoController => "no controller resolves failures",
            Self::NoCommitBarrier => "the switch sends no commit barrier",
            Self::TooLarge => "the receiver cannot reserve as much",
            Self::Cancelled => "cancelled",
            Self::Excluded => "this process was declared failed",
        })
    }
}

/// A reliable scattering without an outcome.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OpenScattering {
    /// Id of the scattering.
    pub scattering: ScatteringId,
    /// Timestamp of the scattering. `None` while it waits to be sent.
    pub timestamp: Option<Timestamp>,
    /// The receivers that have acknowledged neither their messages nor the recall, in ascending
    /// order.
    pub receivers: alloc::vec::Vec<ProcessId>,
    /// Whether it was recalled: it is reported as failed, or will be.
    pub is_recalled: bool,
}
