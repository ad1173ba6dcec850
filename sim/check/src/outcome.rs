//! Outcomes of messages and scatterings.

use onepipe_base::{ProcessId, Timestamp};

/// Outcome of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The message was delivered.
    Delivered,
    /// The message was not and will not be delivered.
    Lost,
    /// The message may or may not have been delivered.
    Unknown,
}

impl Outcome {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Lost => "lost",
            Self::Unknown => "unknown",
        }
    }
}

/// What is known of a message's outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Open,
    Delivered,
    Lost,
    Unknown,
    DeliveredAndUnknown,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Delivered => "delivered",
            Self::Lost => "lost",
            Self::Unknown => "unknown",
            Self::DeliveredAndUnknown => "delivered and unknown",
        }
    }

    /// Returns the state after `outcome` became known; `None` if the two contradict each other.
    pub fn after(self, outcome: Outcome) -> Option<Self> {
        match (self, outcome) {
            (Self::Open, Outcome::Delivered) => Some(Self::Delivered),
            (Self::Open, Outcome::Lost) => Some(Self::Lost),
            (Self::Open, Outcome::Unknown) => Some(Self::Unknown),
            (Self::Unknown, Outcome::Delivered) | (Self::Delivered, Outcome::Unknown) => {
                Some(Self::DeliveredAndUnknown)
            }
            _ => None,
        }
    }
}

/// A scattering with the outcomes of its messages.
#[derive(Clone, Debug)]
pub(crate) struct ScatteringOutcome {
    /// Number of the scattering in its sender's incarnation.
    pub scattering: u64,
    /// Its timestamp, if one was observed.
    pub stamp: Option<Timestamp>,
    /// Time of submission, in ns of the run.
    pub submitted_ns: u64,
    /// Whether the sender's promise was below the commit barrier of a receiver: one of the two has
    /// just joined with a deviating clock. Such a message may arrive too late.
    pub is_behind_commit: bool,
    pub messages: Vec<MessageOutcome>,
}

/// One message of a scattering.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageOutcome {
    pub to: ProcessId,
    pub state: State,
}

impl MessageOutcome {
    pub fn is_delivered(self) -> bool {
        matches!(self.state, State::Delivered | State::DeliveredAndUnknown)
    }
}
