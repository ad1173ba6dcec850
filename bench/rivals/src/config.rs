//! How a member is set up.

use onepipe_base::{Incarnation, ProcessId};
use onepipe_wire::{GROUPS_MAX, HEADER_LEN};

use crate::To;
use crate::entry::ENTRY_HEADER_LEN;

/// The rule by which messages are put in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// None.
    Unordered,
    /// A token goes round.
    Token,
    /// Logical clocks, told once an interval.
    Lamport {
        /// How often a member tells its clock that has sent nothing since, in ns.
        interval_ns: u64,
    },
    /// One node numbers everything. Its process id is the one behind the last member's.
    Sequencer,
    /// Groups of members agree on timestamps. Those behind the last group only send.
    Primcast {
        /// How many groups there are, 1 to 64.
        groups: u32,
        /// How many members each has: an odd number, up to 63. The first of each is its primary.
        group_members: u32,
    },
}

impl Method {
    /// Whether it needs one node more than there are members.
    pub const fn has_sequencer(self) -> bool {
        matches!(self, Self::Sequencer)
    }
}

/// Where frames leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Links {
    /// All through port 0, to a switch.
    Uplink,
    /// One port for each process, by its id.
    Mesh,
}

/// The numbers of a member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// The rule.
    pub method: Method,
    /// Who this is: a member, or the sequencer (the id behind the last member's).
    pub process: ProcessId,
    /// How many members there are: their ids count from 0.
    pub members: u32,
    /// Which life.
    pub incarnation: Incarnation,
    /// Where frames leave. Default [`Links::Uplink`].
    pub links: Links,
    /// The longest frame, in bytes. Default 1,472.
    pub frame_len_max: usize,
    /// How many messages one frame takes at most. Default: as many as fit. 1 for a switch, which
    /// cannot wait for more.
    pub entries_per_frame_max: usize,
    /// How much may be on its way to one member, in bytes. Default 64 KiB.
    pub window_bytes: usize,
    /// Messages that wait for one member, or for the token, at most. Default 1,024.
    pub pending_max: usize,
    /// Acknowledgements that nothing else carries are sent this late, in ns; and this often it is
    /// looked whether something must be sent again. Default 50 us.
    pub tick_ns: u64,
    /// What is not acknowledged for this long is sent again, in ns. Default 5 ms.
    pub resend_ns: u64,
}

impl Config {
    /// The defaults.
    pub const fn new(method: Method, process: ProcessId, members: u32) -> Self {
        Self {
            method,
            process,
            members,
            incarnation: Incarnation(1),
            links: Links::Uplink,
            frame_len_max: 1_472,
            entries_per_frame_max: usize::MAX,
            window_bytes: 64 << 10,
            pending_max: 1_024,
            tick_ns: 50_000,
            resend_ns: 5_000_000,
        }
    }

    /// The longest message that fits a frame, in bytes.
    pub const fn payload_len_max(&self) -> usize {
        let front = HEADER_LEN + crate::connection::ACK_LEN + ENTRY_HEADER_LEN;
        self.frame_len_max.saturating_sub(front)
    }

    /// All nodes: the members, and the sequencer if there is one.
    pub(crate) const fn nodes(&self) -> u32 {
        self.members + self.method.has_sequencer() as u32
    }

    /// Whether there is somebody, or are groups, that a message to `to` would be for.
    pub(crate) fn has(&self, to: To) -> bool {
        match (self.method, to) {
            (Method::Primcast { groups: all, .. }, To::Groups(groups)) => {
                !groups.is_empty() && groups.iter().all(|group| u32::from(group.0) < all)
            }
            (Method::Primcast { .. }, To::One(_)) => false,
            (_, to) => to.is_within(self.members),
        }
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if self.members == 0 || self.process.0 >= self.nodes() {
            let (process, nodes) = (self.process.0, self.nodes());
            return Err(ConfigError::Process { process, nodes });
        }
        if self.links == Links::Mesh && self.nodes() > u32::from(u16::MAX) {
            return Err(ConfigError::Mesh(self.nodes()));
        }
        if self.payload_len_max() == 0 || self.frame_len_max > usize::from(u16::MAX) {
            return Err(ConfigError::Frame(self.frame_len_max));
        }
        let zero =
            |name, is_zero: bool| if is_zero { Err(ConfigError::Zero(name)) } else { Ok(()) };
        zero("pending_max", self.pending_max == 0)?;
        zero("entries_per_frame_max", self.entries_per_frame_max == 0)?;
        zero("tick_ns", self.tick_ns == 0)?;
        zero("resend_ns", self.resend_ns == 0)?;
        match self.method {
            Method::Lamport { interval_ns } => zero("interval_ns", interval_ns == 0),
            Method::Primcast { groups, group_members } => {
                let is_valid = (1..=u32::from(GROUPS_MAX)).contains(&groups)
                    && (1..64).contains(&group_members)
                    && group_members % 2 == 1
                    && groups * group_members <= self.members;
                let wrong = ConfigError::Groups { groups, group_members, members: self.members };
                if is_valid { Ok(()) } else { Err(wrong) }
            }
            _ => Ok(()),
        }
    }
}

/// Why a configuration does not make sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Nobody has this id.
    #[error("process {process} is none of the {nodes} nodes of the group")]
    Process {
        /// The id.
        process: u32,
        /// How many there are.
        nodes: u32,
    },
    /// More nodes than ports.
    #[error("a mesh of {0} nodes has more links than there are ports (65,535)")]
    Mesh(u32),
    /// Nothing fits, or the length does not.
    #[error("frame_len_max = {0} is too short for a message, or longer than 65,535")]
    Frame(usize),
    /// Members cannot be divided so.
    #[error("{groups} groups of {group_members} among {members} members: 1 to 64 of an odd number")]
    Groups {
        /// How many groups.
        groups: u32,
        /// How many members each shall have.
        group_members: u32,
        /// How many processes there are.
        members: u32,
    },
    /// It must be more.
    #[error("{0} must be more than 0")]
    Zero(&'static str),
}
