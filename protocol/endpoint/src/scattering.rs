//! What goes in at the top and what comes out: messages, refusals, events.

use onepipe_base::{Incarnation, Port, ProcessId, ScatteringId, Timestamp};
use onepipe_wire::Service;

/// Bytes that each message costs in a buffer or a window beside its payload: what keeping it
/// costs, so that empty messages are bounded too.
pub const MESSAGE_CHARGE_BYTES: u32 = 64;

/// One message of a scattering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Message<'a> {
    /// Whom it is for; the sender itself is allowed.
    pub to: ProcessId,
    /// What to say, 0 to `message_len_max` bytes.
    pub payload: &'a [u8],
}

/// Why a scattering was not accepted. Nothing of it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The send buffer has no room now; try again when messages have left.
    #[error("the send buffer is full: {need} bytes needed, {free} free")]
    BufferFull {
        /// Bytes the scattering needs, charges included.
        need: usize,
        /// Bytes free.
        free: usize,
    },
    /// The scattering would not fit an empty send buffer.
    #[error("the scattering needs {need} bytes of send buffer, which has {max}")]
    ScatteringTooLarge {
        /// Bytes the scattering needs, charges included.
        need: usize,
        /// The size of the send buffer.
        max: usize,
    },
    /// A message is longer than `message_len_max`.
    #[error("message {index} has {len} bytes, more than {max}")]
    MessageTooLarge {
        /// Its place in the scattering.
        index: usize,
        /// Its length.
        len: usize,
        /// The limit.
        max: u32,
    },
    /// A destination that is no process of this fabric.
    #[error("message {index} is for process {process}, but ids lie below {max}")]
    UnknownProcess {
        /// Its place in the scattering.
        index: usize,
        /// The id given.
        process: u32,
        /// `processes_max`.
        max: u32,
    },
    /// No message at all, or more than 65,535.
    #[error("a scattering has 1 to 65535 messages, not {0}")]
    Count(usize),
    /// The endpoint has left the fabric.
    #[error("this process has left")]
    Left,
    /// The endpoint was declared failed: only a new life of the process takes part again.
    #[error("this process was declared failed")]
    Excluded,
}

/// What an endpoint tells its application.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Event {
    /// The next message in the total order. Its payload stays in the receive buffer until
    /// [`crate::Endpoint::release`].
    Delivered(Delivery),
    /// A message that will not be delivered, or whose fate cannot be known.
    SendFailed(SendFailed),
    /// Nothing was heard on this link for `link_timeout_ns`: the barrier goes on without it.
    LinkLost(Port),
    /// A process has failed: nothing that it has scattered reliably at or above the timestamp is
    /// ever delivered, all below it is. Deliveries of the reliable service resume when every
    /// correct process has called [`crate::Endpoint::on_failure_handled`].
    ProcessFailed(ProcessFailed),
    /// This process was declared failed, or cut off: it takes part no more, and may come back as a
    /// new life.
    Excluded(Timestamp),
    /// After [`crate::Endpoint::recover`]: everything reliable below this that was to be delivered
    /// has been.
    Recovered(Timestamp),
}

/// A process that has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessFailed {
    /// Who.
    pub process: ProcessId,
    /// Every life of it up to this one.
    pub incarnation: Incarnation,
    /// Its failure timestamp.
    pub at: Timestamp,
}

/// A message in its place in the total order `(timestamp, from, index)`. Released once: not `Copy`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Delivery {
    /// How it was sent.
    pub service: Service,
    /// The timestamp of its scattering.
    pub timestamp: Timestamp,
    /// Who sent it.
    pub from: ProcessId,
    /// Its place in its scattering.
    pub index: u16,
    /// Its length in bytes.
    pub len: u32,
    /// Where it lies in the receive buffer.
    pub(crate) buffered: crate::receive::BufferedMessage,
}

/// The report on a message of one's own that was not, or perhaps not, delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SendFailed {
    /// How it was sent; scatterings are numbered in each service.
    pub service: Service,
    /// The scattering it belonged to.
    pub scattering: ScatteringId,
    /// Its place in the scattering.
    pub index: u16,
    /// Whom it was for.
    pub to: ProcessId,
    /// Its timestamp, if it was ever sent.
    pub timestamp: Option<Timestamp>,
    /// What is known.
    pub outcome: Outcome,
}

/// What is known of a message that was not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The receiver did not and will not deliver it.
    Lost,
    /// The receiver cannot be reached, or has restarted: it may or may not have delivered it.
    Unknown,
}
