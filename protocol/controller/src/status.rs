//! A controller's view of its fabric, for operators.

use alloc::vec::Vec;

use onepipe_base::{Instance, ProcessId, Timestamp};
use onepipe_wire::Resolved;

use crate::{Epoch, FailedInstance, Stats};

/// The state of a replica at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Status {
    /// The replica.
    pub replica: ProcessId,
    /// Its epoch, if it is active.
    pub active: Option<Epoch>,
    /// Whether the store accepts records; recovery waits while it does not.
    pub is_store_available: bool,
    /// Records that wait for the store.
    pub records_waiting: usize,
    /// Nodes to which this replica is attached.
    pub attachments: Vec<Instance>,
    /// All instances that this replica knows, in ascending order.
    pub members: Vec<MemberStatus>,
    /// Failures and leaves whose recovery is not complete.
    pub open: Vec<FailedInstance>,
    /// All failures and graceful leaves of processes ever decided, oldest first.
    pub failures: Vec<FailedInstance>,
    /// Frozen links.
    pub frozen: Vec<FrozenStatus>,
    /// The counters of this replica.
    pub stats: Stats,
}

/// One node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemberStatus {
    /// The instance.
    pub instance: Instance,
    /// Its state.
    pub state: MemberState,
    /// Number of its links that are up.
    pub links_up: usize,
}

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemberState {
    /// Mentioned, but not yet connected.
    Joining,
    /// A path of links that are up leads to the controller.
    Up,
    /// The node has no path to the controller; its failure is not decided yet.
    Suspected,
    /// The node has failed, and is not removed from the graph yet.
    Failed,
    /// The node has left gracefully; not all processes have completed that.
    Left,
}

/// A frozen link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrozenStatus {
    /// The owner, and the number that it gave to the link's death.
    pub link: Resolved,
    /// The instance at the other end.
    pub peer: Option<Instance>,
    /// The last commit promised on it.
    pub commit: Timestamp,
}
