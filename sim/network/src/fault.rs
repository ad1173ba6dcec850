//! Faults of nodes and links.

use crate::{LinkFaults, LinkId, NodeId};

/// A fault of a node or a link, or the end of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The node stops. Its state and the frames on its outgoing links are lost.
    Crash(NodeId),
    /// The node sends the given number of frames, and crashes when it is to send the next one.
    /// Beacons are sent and do not count.
    CrashAfter(NodeId, u32),
    /// A crashed node restarts with empty state. Its clock is synchronized first, as a host does
    /// before it joins.
    Restart(NodeId),
    /// The link goes down and loses the frames on it.
    Cut(LinkId),
    /// The link works again.
    Repair(LinkId),
    /// Replaces the fault settings of the link.
    SetLinkFaults(LinkId, LinkFaults),
    /// Steps the node's synchronized clock by the given ns.
    StepClock(NodeId, i64),
    /// Pauses the node for the given ns (SIGSTOP, a halted virtual machine). Frames wait in its
    /// receive ring.
    Pause(NodeId, u64),
}
