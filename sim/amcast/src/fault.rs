//! What may befall a world.

use onepipe_base::ProcessId;
use onepipe_sim_network::{LinkFaults, NodeId};
use onepipe_wire::Opcode;

/// What of somebody's words is not heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketFilter {
    /// All is heard.
    None,
    /// What has been taken, and clocks, but for those told with messages.
    Acks,
    /// What is asked for.
    Requests,
    /// Nothing is heard.
    All,
}

impl PacketFilter {
    /// Whether packets of this kind are lost.
    pub(crate) fn matches(self, opcode: Opcode) -> bool {
        match self {
            Self::None => false,
            Self::Acks => opcode == Opcode::AmcastAck,
            Self::Requests => opcode == Opcode::Gap,
            Self::All => true,
        }
    }
}

/// Something that befalls a world, or ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultEvent {
    /// A switch dies, with the members in it; under a top-of-rack switch all hosts are cut off for
    /// good, and count as dead.
    Switch(NodeId),
    /// A member dies, but not its switch.
    Member(ProcessId),
    /// Whoever sits on this host dies.
    Host(NodeId),
    /// A replica or a coordinator begins again; the replica with another one's state.
    Restart(NodeId),
    /// The host stands still for so many ns.
    Pause(NodeId, u64),
    /// All links lose, repeat, change and hold up frames like this.
    Links(LinkFaults),
    /// The links between a switch and the switches next to it are cut: what lies on them is lost.
    Isolate(NodeId),
    /// They work again.
    Reconnect(NodeId),
    /// Members of one group, which may be a majority, lose their links to other switches at a time:
    /// other ones decide meanwhile, or nobody.
    IsolateMany(Vec<NodeId>),
    /// They have them again.
    ReconnectMany(Vec<NodeId>),
    /// A coordinator does not hear a member, and may take it for dead; `None`: it hears everybody.
    CoordinatorLoss(ProcessId, Option<ProcessId>),
    /// Members do not hear what others say to them. By pairs: who says, and who does not hear.
    MemberLoss(Vec<(ProcessId, ProcessId)>, PacketFilter),
    /// The active coordinator's lease runs out.
    LeaseExpiry,
    /// The fabric has noticed what is dead, and sends around it.
    Reroute,
}

impl FaultEvent {
    /// Its name, if it is a fault and not the end of one.
    pub fn name(&self) -> Option<&'static str> {
        Some(match self {
            Self::Switch(_) => "switch crash",
            Self::Member(_) => "member crash",
            Self::Host(_) => "host crash",
            Self::Restart(_) => "rejoin",
            Self::Pause(..) => "pause",
            Self::Links(_) => "faulty links",
            Self::Isolate(_) => "switch cut off",
            Self::IsolateMany(_) => "members cut off",
            Self::CoordinatorLoss(_, Some(_)) => "coordinator cannot hear a member",
            Self::LeaseExpiry => "lease lost",
            Self::MemberLoss(_, filter) if *filter != PacketFilter::None => {
                "members cannot hear others"
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
