//! What it tells its application, and why it refuses a scattering.

use onepipe_base::{Port, ProcessId, Timestamp};
use onepipe_endpoint::{ProcessFailed, SendFailed, Service};

/// What it tells its application. As [`onepipe_endpoint::Event`], with payloads of any size.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Event {
    /// The next message in the total order. Its payload stays where it is until
    /// [`crate::LargeEndpoint::release`] or [`crate::LargeEndpoint::take`].
    Delivered(Delivery),
    /// A message that will not be delivered, or whose fate cannot be known.
    SendFailed(SendFailed),
    /// Nothing was heard on this link for a while: the barrier goes on without it.
    LinkLost(Port),
    /// A process has failed.
    ProcessFailed(ProcessFailed),
    /// This process was declared failed, or cut off.
    Excluded(Timestamp),
    /// Everything reliable below this that was to be delivered has been.
    Recovered(Timestamp),
}

/// A message in its place in the total order. Released once: not `Copy`.
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
    pub bytes: u64,
    pub(crate) held: Held,
}

impl Delivery {
    /// The endpoint's own delivery, if it is a message as the endpoint has it: then its payload may
    /// be asked for, and released, there.
    ///
    /// # Errors
    /// It comes back if it is not.
    #[inline]
    pub fn into_message(self) -> Result<onepipe_endpoint::Delivery, Self> {
        match self.held {
            Held::Message { delivery, skip: 0 } => Ok(delivery),
            _ => Err(self),
        }
    }
}

/// Where a payload lies.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Held {
    /// In the endpoint, behind so many bytes that are ours.
    Message { delivery: onepipe_endpoint::Delivery, skip: usize },
    /// What this group has brought.
    Object(u64),
}

/// Why a scattering was not accepted. Nothing of it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The endpoint refuses it.
    #[error(transparent)]
    Endpoint(#[from] onepipe_endpoint::SendError),
    /// Too much of what was submitted has no place in the order yet; try again later.
    #[error("{need} bytes needed for large payloads, {free} free")]
    Full {
        /// Bytes that the scattering has.
        need: u64,
        /// Bytes free.
        free: u64,
    },
    /// A payload is larger than any may be, or the scattering is larger than all may be together.
    #[error("message {index} has {bytes} bytes, more than {max}")]
    TooLarge {
        /// Its place in the scattering.
        index: usize,
        /// Its length.
        bytes: u64,
        /// The limit.
        max: u64,
    },
}

/// Counters of large payloads, all since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stats {
    /// Payloads that were sent on their way.
    pub objects_sent: u64,
    /// Those that have come to all their receivers.
    pub objects_ordered: u64,
    /// Those that could not be brought to all.
    pub objects_failed: u64,
    /// Payloads that have come here, whole.
    pub objects_received: u64,
    /// Those that will never be ordered, and were dropped.
    pub objects_dropped: u64,
    /// Descriptors, best-effort ones, whose payload is here no more.
    pub orphans: u64,
    /// Notes that make no sense.
    pub misbehaved: u64,
}
