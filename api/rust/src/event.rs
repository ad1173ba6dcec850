//! The events of a pipe.

use onepipe_base::{ProcessId, Timestamp};
use onepipe_endpoint::{ProcessFailed, ProcessLeft, SendFailed};
use onepipe_transport_udp::{Refusal, TermsChange};
use onepipe_wire::{RefuseReason, Service};

/// An event of a pipe. `P` is the payload: owned (`Vec<u8>`), or borrowed for the duration of a
/// callback (`&[u8]`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<P = Vec<u8>> {
    /// The next message in the total order.
    Message(Received<P>),
    /// A message that this process had received and acknowledged, and that it could not deliver
    /// before its leave timed out: the fabric had not passed the message's timestamp. The messages
    /// handed back follow the last delivered one, in the total order. Their senders count them as
    /// delivered; other receivers of a reliable scattering may deliver theirs. An application that
    /// must not lose them applies them here, or stores them.
    Undelivered(Received<P>),
    /// A sent message that will not be delivered, or whose outcome cannot be known.
    SendFailed(SendFailed),
    /// A link is down: the peer has died or timed out. No process waits for it any more. The death
    /// of a process is reported after everything that it had sent; a process that leaves gracefully
    /// is not reported.
    LinkLost(Link),
    /// A process has failed by decision of the controllers: no reliable message that it sent at or
    /// above the timestamp is ever delivered to any process, all below it are delivered to their
    /// receivers. If it still runs, what it has itself delivered at or above the timestamp is void:
    /// the others go on as if that had not happened, and it learns so by [`Event::Excluded`]. All
    /// remaining processes get the same event. Application-level recovery (releasing
    /// a lock, replacing a replica) is best done in [`crate::Pipe::on_process_failed`], or before
    /// the callback of [`crate::EmbeddedPipe::poll`] returns: reliable deliveries of all processes
    /// wait until it is done.
    ProcessFailed(ProcessFailed),
    /// A process has left gracefully, by decision of the controllers: its reliable messages below
    /// the timestamp are delivered, and it has sent none above. Nothing waits for the application.
    ProcessLeft(ProcessLeft),
    /// This process itself was declared failed: it timed out, or was partitioned from the others.
    /// Received messages that the others deliver are still delivered; then [`Event::Recovered`]
    /// follows, if a controller can be reached. The process cannot send any more. `rejoin` makes it
    /// a member again.
    Excluded {
        /// The failure timestamp. Deliveries of this process's own messages at or above it are
        /// void: no other process delivers its part of those scatterings. An application that has
        /// applied them must undo them, or drop its state (see the example `bank`).
        void_from: Timestamp,
    },
    /// After [`Event::Excluded`]: all reliable messages below this timestamp that were to be
    /// delivered to this process have been.
    Recovered(Timestamp),
    /// The switch has restarted and does not admit this process any more, for example because it
    /// serves fewer ids now. Reported once for each reason. The process is admitted by itself if
    /// the reason passes.
    Refused(RefuseReason),
    /// The switch has restarted with other terms than those under which this process has joined,
    /// and this process takes no part until the switch is restarted with the same ones.
    /// [`TermsChange::mismatch`] names the setting. Reported once for each such start.
    TermsChanged(TermsChange),
    /// Another process has shortened the file of the shared memory. This is the last event: nothing
    /// is received any more, and the outcomes of messages in flight are unknown. A
    /// [`crate::Pipe`] has ended; an [`crate::EmbeddedPipe`] must be ended. `leave` returns
    /// [`crate::LeaveError::SegmentLost`], which names the file.
    SegmentLost,
}

impl<P> Event<P> {
    /// The message, if the event is one.
    pub fn message(self) -> Option<Received<P>> {
        match self {
            Self::Message(message) => Some(message),
            _ => None,
        }
    }

    pub(crate) fn refused(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Reason(reason, _) => Self::Refused(reason),
            Refusal::Changed(change) => Self::TermsChanged(change),
        }
    }

    /// Converts the payload.
    pub(crate) fn map<Q>(self, change: impl FnOnce(P) -> Q) -> Event<Q> {
        match self {
            Self::Message(received) => Event::Message(received.map(change)),
            Self::Undelivered(received) => Event::Undelivered(received.map(change)),
            Self::SendFailed(failed) => Event::SendFailed(failed),
            Self::LinkLost(link) => Event::LinkLost(link),
            Self::ProcessFailed(failed) => Event::ProcessFailed(failed),
            Self::ProcessLeft(left) => Event::ProcessLeft(left),
            Self::Excluded { void_from } => Event::Excluded { void_from },
            Self::Recovered(complete) => Event::Recovered(complete),
            Self::Refused(reason) => Event::Refused(reason),
            Self::TermsChanged(change) => Event::TermsChanged(change),
            Self::SegmentLost => Event::SegmentLost,
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

impl<P> Received<P> {
    fn map<Q>(self, change: impl FnOnce(P) -> Q) -> Received<Q> {
        let Self { service, timestamp, from, index, payload } = self;
        Received { service, timestamp, from, index, payload: change(payload) }
    }
}

/// The peer of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Link {
    /// A process (shared memory).
    Process(ProcessId),
    /// The switch (UDP). The pipe resumes by itself once the switch responds again.
    Switch,
}
