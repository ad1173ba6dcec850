//! The events of a pipe.

use onepipe_base::{ProcessId, Timestamp};
use onepipe_endpoint::{ProcessFailed, SendFailed};
use onepipe_wire::{RefuseReason, Service};

/// An event of a pipe. `P` is the payload: owned (`Vec<u8>`), or borrowed for the duration of a
/// callback (`&[u8]`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<P = Vec<u8>> {
    /// The next message in the total order.
    Message(Received<P>),
    /// A sent message that will not be delivered, or whose outcome cannot be known.
    SendFailed(SendFailed),
    /// A link is down: the peer has died or timed out. No process waits for it any more. The death
    /// of a process is reported after everything that it had sent; a process that leaves gracefully
    /// is not reported.
    LinkLost(Link),
    /// A process has failed by decision of the controllers: no reliable message that it sent at or
    /// above the timestamp is ever delivered to any process, all below it are delivered to their
    /// receivers. All remaining processes get the same event. Application-level recovery (releasing
    /// a lock, replacing a replica) is best done in [`crate::Pipe::on_process_failed`], or before
    /// the callback of [`crate::EmbeddedPipe::poll`] returns: reliable deliveries of all processes
    /// wait until it is done.
    ProcessFailed(ProcessFailed),
    /// This process itself was declared failed at this timestamp: it timed out, or was partitioned
    /// from the others. Received messages that the others deliver are still delivered; then
    /// [`Event::Recovered`] follows, if a controller can be reached. The process cannot send any
    /// more. `rejoin` makes it a member again.
    Excluded(Timestamp),
    /// After [`Event::Excluded`]: all reliable messages below this timestamp that were to be
    /// delivered to this process have been.
    Recovered(Timestamp),
    /// The switch has restarted and does not admit this process any more, for example because it
    /// serves fewer ids now. Reported once for each reason. The process is admitted by itself if
    /// the reason passes.
    Refused(RefuseReason),
}

impl<P> Event<P> {
    /// The message, if the event is one.
    pub fn message(self) -> Option<Received<P>> {
        match self {
            Self::Message(message) => Some(message),
            _ => None,
        }
    }

    /// Converts the payload.
    pub(crate) fn map<Q>(self, change: impl FnOnce(P) -> Q) -> Event<Q> {
        match self {
            Self::Message(Received { service, timestamp, from, index, payload }) => {
                let payload = change(payload);
                Event::Message(Received { service, timestamp, from, index, payload })
            }
            Self::SendFailed(failed) => Event::SendFailed(failed),
            Self::LinkLost(link) => Event::LinkLost(link),
            Self::ProcessFailed(failed) => Event::ProcessFailed(failed),
            Self::Excluded(at) => Event::Excluded(at),
            Self::Recovered(complete) => Event::Recovered(complete),
            Self::Refused(reason) => Event::Refused(reason),
        }
    }
}

/// A message with its position in the total order `(timestamp, from, index)`, which is the same at
/// every receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received<P = Vec<u8>> {
    /// The service that it was sent with.
    pub service: Service,
    /// The timestamp of its scattering.
    pub timestamp: Timestamp,
    /// The sender.
    pub from: ProcessId,
    /// Its index in its scattering.
    pub index: u16,
    /// The payload.
    pub payload: P,
}

/// The peer of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Link {
    /// A process (shared memory).
    Process(ProcessId),
    /// The switch (UDP). The pipe resumes by itself once the switch responds again.
    Switch,
}
