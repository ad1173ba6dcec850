//! Faults of a simulated network.

use onepipe_base::ProcessId;
use onepipe_sim_network::{LinkFaults, NodeId};
use onepipe_wire::Opcode;

/// Kinds of packets that are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketFilter {
    /// No packets.
    None,
    /// Acknowledgements, and with them clocks that are not sent with messages.
    Acks,
    /// Requests for missing positions.
    Requests,
    /// All packets.
    All,
}

impl PacketFilter {
    /// Returns whether packets with this opcode are dropped.
    pub(crate) fn matches(self, opcode: Opcode) -> bool {
        match self {
            Self::None => false,
            Self::Acks => opcode == Opcode::AmcastAck,
            Self::Requests => opcode == Opcode::Gap,
            Self::All => true,
        }
    }
}

/// Fault, or the end of a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultEvent {
    /// A switch crashes with its members. The hosts below a top-of-rack switch are disconnected
    /// permanently and count as crashed.
    Switch(NodeId),
    /// A member crashes, but not its switch.
    Member(ProcessId),
    /// A crashed member restarts with an empty memory, if all others of its group had received its
    /// first incarnation.
    RestartMember(ProcessId),
    /// The process on this host crashes.
    Host(NodeId),
    /// A replica or a coordinator restarts; a replica with the state of another one.
    Restart(NodeId),
    /// The host is descheduled for this time, in ns.
    Pause(NodeId, u64),
    /// All links lose, duplicate, corrupt and delay frames at these rates.
    Links(LinkFaults),
    /// All links between a switch and other switches fail, with the frames on them.
    Isolate(NodeId),
    /// The links of an isolated switch recover.
    Reconnect(NodeId),
    /// The switches of several members of a group, possibly of a majority, are isolated at the same
    /// time.
    IsolateMany(Vec<NodeId>),
    /// The links of these switches recover.
    ReconnectMany(Vec<NodeId>),
    /// A coordinator receives nothing from a member, and may suspect it; `None` ends this.
    CoordinatorLoss(ProcessId, Option<ProcessId>),
    /// Members receive no packets of some kinds: pairs of sender and receiver.
    MemberLoss(Vec<(ProcessId, ProcessId)>, PacketFilter),
    /// The lease of the active coordinator expires early.
    LeaseExpiry,
    /// Routing has detected failed components and avoids them from now on.
    Reroute,
}

impl FaultEvent {
    /// Returns the name of the fault; `None` if the event ends a fault.
    pub fn name(&self) -> Option<&'static str> {
        Some(match self {
            Self::Switch(_) => "switch crash",
            Self::Member(_) => "member crash",
            Self::RestartMember(_) => "member restarted",
            Self::Host(_) => "host crash",
            Self::Restart(_) => "rejoin",
            Self::Pause(..) => "pause",
            Self::Links(_) => "faulty links",
            Self::Isolate(_) => "switch cut off",
            Self::IsolateMany(_) => "members cut off",
            Self::CoordinatorLoss(_, Some(_)) => "coordinator loses a member's frames",
            Self::LeaseExpiry => "lease lost",
            Self::MemberLoss(_, filter) if *filter != PacketFilter::None => {
                "members lose others' packets"
            }
            Self::MemberLoss(..)
            | Self::Reconnect(_)
            | Self::ReconnectMany(_)
            | Self::CoordinatorLoss(_, None)
            | Self::Reroute => {
                return None;
            }
        })
    }
}
