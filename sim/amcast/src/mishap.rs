//! What may befall a world.

use onepipe_base::ProcessId;
use onepipe_sim_network::{LinkFaults, NodeId};
use onepipe_wire::Opcode;

/// What of somebody's words is not heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Muted {
    /// All is heard.
    Nothing,
    /// What has been taken, and clocks, but for those told with messages.
    Acknowledgements,
    /// What is asked for.
    Questions,
    /// Nothing is heard.
    Everything,
}

impl Muted {
    /// Whether packets of this kind are lost.
    pub(crate) fn has(self, opcode: Opcode) -> bool {
        match self {
            Self::Nothing => false,
            Self::Acknowledgements => opcode == Opcode::AmcastAck,
            Self::Questions => opcode == Opcode::Gap,
            Self::Everything => true,
        }
    }
}

/// Something that befalls a world, or ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mishap {
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
    CutOff(NodeId),
    /// They work again.
    Mend(NodeId),
    /// Members of one group, which may be a majority, lose their links to other switches at a time:
    /// other ones decide meanwhile, or nobody.
    Apart(Vec<NodeId>),
    /// They have them again.
    Together(Vec<NodeId>),
    /// A coordinator does not hear a member, and may take it for dead; `None`: it hears everybody.
    Deaf(ProcessId, Option<ProcessId>),
    /// Members do not hear what others say to them. By pairs: who says, and who does not hear.
    Mute(Vec<(ProcessId, ProcessId)>, Muted),
    /// The active coordinator's lease runs out.
    Lapse,
    /// The fabric has noticed what is dead, and sends around it.
    Reroute,
}

impl Mishap {
    /// Its name, if it is a fault and not the end of one.
    pub fn name(&self) -> Option<&'static str> {
        Some(match self {
            Self::Switch(_) => "switch crash",
            Self::Member(_) => "member crash",
            Self::Host(_) => "host crash",
            Self::Restart(_) => "rejoin",
            Self::Pause(..) => "pause",
            Self::Links(_) => "unsound links",
            Self::CutOff(_) => "switch cut off",
            Self::Apart(_) => "members cut off",
            Self::Deaf(_, Some(_)) => "coordinator deaf to a member",
            Self::Lapse => "lease lost",
            Self::Mute(_, to) if *to != Muted::Nothing => "members deaf to others",
            Self::Mute(..)
            | Self::Mend(_)
            | Self::Together(_)
            | Self::Deaf(_, None)
            | Self::Reroute => {
                return None;
            }
        })
    }
}
