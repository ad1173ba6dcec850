//! What a pipe tells its user.

use onepipe_base::{ProcessId, Timestamp};
use onepipe_endpoint::{ProcessFailed, SendFailed};
use onepipe_wire::Service;

/// What a pipe tells its user. `P` is the payload: owned (`Vec<u8>`), or borrowed for the length
/// of a callback (`&[u8]`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<P = Vec<u8>> {
    /// The next message in the total order.
    Message(Received<P>),
    /// A message of one's own that will not be delivered, or whose fate cannot be known.
    SendFailed(SendFailed),
    /// Whoever is at the other end of this link has died or fallen silent. Nobody waits for it any
    /// more. The death of a process is reported behind everything that it had sent; a process that
    /// leaves gracefully is not reported.
    LinkLost(Link),
    /// A process has failed, as the controllers have decided: no reliable message that it sent at
    /// or above the timestamp is ever delivered to anybody, all below it are delivered to whoever
    /// they were for. The same is told to everybody who is left. What follows for the application
    /// (a lock to release, a replica to replace) is best done in
    /// [`crate::Pipe::on_process_failed`], or before the callback of [`crate::EmbeddedPipe::poll`]
    /// returns: before reliable deliveries go on, everybody is through with it.
    ProcessFailed(ProcessFailed),
    /// This process itself was declared failed, at this timestamp: it was silent for too long, or
    /// cut off from the others. What it had received and the others deliver is still delivered to
    /// it; then [`Event::Recovered`] follows, if a controller can be reached. It sends nothing any
    /// more. `rejoin` makes it a member again.
    Excluded(Timestamp),
    /// After [`Event::Excluded`]: everything reliable below this that was to be delivered to this
    /// process has been.
    Recovered(Timestamp),
}

impl<P> Event<P> {
    /// The message, if it is one.
    pub fn message(self) -> Option<Received<P>> {
        match self {
            Self::Message(message) => Some(message),
            _ => None,
        }
    }

    /// The same event with another payload.
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
        }
    }
}

/// A message in its place in the total order `(timestamp, from, index)`, which is the same at
/// every receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received<P = Vec<u8>> {
    /// How it was sent.
    pub service: Service,
    /// The timestamp of its scattering.
    pub timestamp: Timestamp,
    /// Who sent it.
    pub from: ProcessId,
    /// Its place in its scattering.
    pub index: u16,
    /// What it says.
    pub payload: P,
}

/// Where a link leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Link {
    /// To a process (shared memory).
    Process(ProcessId),
    /// To the switch (UDP). Once it answers again, the pipe goes on by itself.
    Switch,
}
