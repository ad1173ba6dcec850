//! What a replica sends to other replicas.

use alloc::vec::Vec;

use onepipe_base::ProcessId;

/// A scattering of a replica to other replicas.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReplicaScattering {
    /// Whether the reliable service is to be used.
    pub is_reliable: bool,
    /// Receivers and payloads, one for each receiver.
    pub messages: Vec<(ProcessId, Vec<u8>)>,
    /// Whether the scattering asks for the admission of its sender.
    pub(crate) is_admission: bool,
}

impl ReplicaScattering {
    pub(crate) fn best_effort(messages: Vec<(ProcessId, Vec<u8>)>) -> Self {
        Self { is_reliable: false, messages, is_admission: false }
    }

    pub(crate) fn reliable(messages: Vec<(ProcessId, Vec<u8>)>) -> Self {
        Self { is_reliable: true, messages, is_admission: false }
    }
}
