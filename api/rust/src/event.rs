//! What a pipe tells its user.

use onepipe_base::{ProcessId, Timestamp};
use onepipe_endpoint::SendFailed;

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
            Self::Message(Received { timestamp, from, index, payload }) => {
                Event::Message(Received { timestamp, from, index, payload: change(payload) })
            }
            Self::SendFailed(failed) => Event::SendFailed(failed),
            Self::LinkLost(link) => Event::LinkLost(link),
        }
    }
}

/// A message in its place in the total order `(timestamp, from, index)`, which is the same at
/// every receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received<P = Vec<u8>> {
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
