//! Events for the application, and errors of submission.

use onepipe_base::{Port, ProcessId, Timestamp};
use onepipe_endpoint::{ProcessFailed, ProcessLeft, SendFailed, Service};

/// An event for the application. As [`onepipe_endpoint::Event`], with payloads of any size.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Event {
    /// The next message in the total order. Its payload is valid until
    /// [`crate::LargeEndpoint::release`] or [`crate::LargeEndpoint::take`].
    Delivered(Delivery),
    /// A message that was acknowledged and cannot be delivered before this process leaves: see
    /// [`onepipe_endpoint::Event::Undelivered`]. Its payload is valid until it is released.
    Undelivered(Delivery),
    /// A message that will not be delivered, or whose outcome cannot be known.
    SendFailed(SendFailed),
    /// Nothing was received on this link for its timeout: the barrier continues without it.
    LinkLost(Port),
    /// A process has failed.
    ProcessFailed(ProcessFailed),
    /// See [`onepipe_endpoint::Event::ProcessLeft`].
    ProcessLeft(ProcessLeft),
    /// This process was declared failed, or cut off.
    Excluded(Timestamp),
    /// Every deliverable reliable message below this timestamp has been delivered.
    Recovered(Timestamp),
}

/// A delivered message. Must be released exactly once: not `Copy`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Delivery {
    /// The service that carried it.
    pub service: Service,
    /// The timestamp of its scattering.
    pub timestamp: Timestamp,
    /// The sender.
    pub from: ProcessId,
    /// Index in its scattering.
    pub index: u16,
    /// Length in bytes.
    pub bytes: u64,
    pub(crate) storage: Storage,
}

impl Delivery {
    /// Returns the endpoint's delivery if the message is stored in the endpoint unchanged: its
    /// payload may then be read and released there.
    ///
    /// # Errors
    /// Returns `self` otherwise.
    #[inline]
    pub fn into_message(self) -> Result<onepipe_endpoint::Delivery, Self> {
        match self.storage {
            Storage::Message { delivery, skip: 0 } => Ok(delivery),
            _ => Err(self),
        }
    }
}

/// Where a payload is stored.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Storage {
    /// In the endpoint, after `skip` bytes of header.
    Message { delivery: onepipe_endpoint::Delivery, skip: usize },
    /// In the object of this group.
    Object(u64),
}

/// Why a scattering was refused as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The endpoint refused it.
    #[error(transparent)]
    Endpoint(#[from] onepipe_endpoint::SendError),
    /// Too many submitted bytes are not ordered yet; retry later.
    #[error("{need} bytes needed for large payloads, {free} free")]
    Full {
        /// Bytes of the scattering.
        need: u64,
        /// Free bytes.
        free: u64,
    },
    /// A payload exceeds the maximum length, or the scattering exceeds the send buffer.
    #[error("message {index} has {bytes} bytes, more than {max}")]
    TooLarge {
        /// Index of the message in the scattering.
        index: usize,
        /// Length in bytes.
        bytes: u64,
        /// The limit in bytes.
        max: u64,
    },
}

/// Counters of large payloads since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stats {
    /// Payloads whose transfer was started.
    pub objects_sent: u64,
    /// Payloads that were ordered, because they had reached all their receivers.
    pub objects_ordered: u64,
    /// Payloads that were not ordered, because a receiver failed or this process was excluded.
    pub objects_failed: u64,
    /// Payloads received completely.
    pub objects_received: u64,
    /// Payloads dropped because they will never be ordered.
    pub objects_dropped: u64,
    /// Best-effort descriptors whose payload is missing or was dropped.
    pub orphans: u64,
    /// Malformed control messages, invalid invitations, and payloads with a wrong digest.
    pub invalid: u64,
}
