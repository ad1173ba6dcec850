//! A controller's view of its fabric, for people.

use alloc::vec::Vec;

use onepipe_base::{Instance, ProcessId, Timestamp};
use onepipe_wire::Resolved;

use crate::{Epoch, FailedInstance, Stats};

/// What a replica knows at this moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Status {
    /// Which replica says so.
    pub replica: ProcessId,
    /// Its epoch, if it is active.
    pub active: Option<Epoch>,
    /// Whether the store takes records; recovery waits while it does not.
    pub is_store_available: bool,
    /// Records that wait for the store.
    pub records_waiting: usize,
    /// Where it is attached to the fabric.
    pub attachments: Vec<Instance>,
    /// All lives that it knows of, ascending.
    pub members: Vec<MemberStatus>,
    /// Failures whose recovery is not finished.
    pub open: Vec<FailedInstance>,
    /// All failures of processes ever decided, oldest first.
    pub failures: Vec<FailedInstance>,
    /// Links that hold commits.
    pub frozen: Vec<FrozenStatus>,
    /// Counters.
    pub stats: Stats,
}

/// One node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemberStatus {
    /// Who.
    pub instance: Instance,
    /// How it is.
    pub state: MemberState,
    /// How many of its links are up.
    pub links_up: usize,
}

/// How a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemberState {
    /// Heard of, but not yet connected.
    Joining,
    /// Connected.
    Up,
    /// It has no path to the controller; not yet decided.
    Suspected,
    /// It has failed, and not all processes have completed that.
    Failed,
}

/// A link that holds commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrozenStatus {
    /// Whose, and the owner's number of it.
    pub link: Resolved,
    /// Who was at its other end.
    pub peer: Option<Instance>,
    /// The last commit promised on it.
    pub commit: Timestamp,
}
