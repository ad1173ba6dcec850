//! The fields of a frame on which the choice among equal next hops depends.

use onepipe_base::{ProcessId, Psn};

/// The header fields that determine the next hop.
#[derive(Clone, Copy)]
pub(crate) struct FlowKey {
    pub src: ProcessId,
    pub dst: ProcessId,
    pub psn: Psn,
}
