//! What a machine asks its driver to send.

use alloc::vec::Vec;

use onepipe_base::ProcessId;

/// A message to one or more processes, at one timestamp.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scattering {
    /// What it is for, which also says the service.
    pub kind: ScatteringKind,
    /// The receivers.
    pub receivers: Vec<ProcessId>,
    /// The payload for each of them.
    pub payload: Vec<u8>,
}

/// What a scattering is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScatteringKind {
    /// A request or a reply. Sent by best effort.
    BestEffort,
    /// Asks for a new view. Reliable.
    Sync,
    /// What a member has. Reliable.
    Statement,
    /// Asks for a new view with the sender. Reliable.
    Join,
    /// Notes that the sender ends. Reliable.
    Leave,
}

impl ScatteringKind {
    /// Returns whether the reliable service is to be used.
    pub fn is_reliable(self) -> bool {
        self != Self::BestEffort
    }
}
