//! Configuration of a member.

use onepipe_base::{Incarnation, ProcessId};
use onepipe_wire::{GROUPS_MAX, SHORT_HEADER_LEN};

use crate::To;
use crate::entry::{ACK_LEN, ENTRY_HEADER_LEN};

/// Method that defines the order of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// No order.
    Unordered,
    /// A token with the next sequence number circulates.
    Token,
    /// Lamport clocks, advertised at an interval.
    Lamport {
        /// Maximum time without a message or an advertisement of the clock, in ns.
        interval_ns: u64,
    },
    /// A sequencer numbers all messages. Its process id follows that of the last member.
    Sequencer,
    /// Groups of members agree on timestamps. Processes behind the last group only send.
    Primcast {
        /// Number of groups, 1 to 64.
        groups: u32,
        /// Members of each group: an odd number, up to 63. The first member is the primary.
        group_members: u32,
    },
}

impl Method {
    /// Returns whether the method needs a sequencer beside the members.
    pub const fn has_sequencer(self) -> bool {
        matches!(self, Self::Sequencer)
    }
}

/// Assignment of frames to ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Links {
    /// All frames use port 0, which leads to a switch.
    Uplink,
    /// One port per process, numbered by process id.
    Mesh,
}

/// Settings of a member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Order method.
    pub method: Method,
    /// Own process id: that of a member, or of the sequencer.
    pub process: ProcessId,
    /// Number of members, with ids from 0.
    pub members: u32,
    /// Own incarnation.
    pub incarnation: Incarnation,
    /// Assignment of frames to ports. Default [`Links::Uplink`].
    pub links: Links,
    /// Maximum length of a frame in bytes. Default 1,472.
    pub frame_len_max: usize,
    /// Maximum number of messages per frame. Default: as many as fit. Set to 1 to model a switch,
    /// which cannot wait for more messages.
    pub entries_per_frame_max: usize,
    /// Maximum number of unacknowledged bytes per connection. Default 64 KiB.
    pub window_bytes: usize,
    /// Maximum number of messages queued for one member, or for the token. Default 1,024.
    pub pending_max: usize,
    /// Maximum delay of an acknowledgement that is not piggybacked, and interval of the check for
    /// retransmissions, in ns. Default 50 us.
    pub tick_ns: u64,
    /// Retransmission timeout in ns. Default 5 ms.
    pub resend_ns: u64,
}

impl Config {
    /// Returns the default settings.
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

    /// Returns the maximum length of a message in bytes.
    pub const fn payload_len_max(&self) -> usize {
        let front = SHORT_HEADER_LEN + ACK_LEN + ENTRY_HEADER_LEN;
        self.frame_len_max.saturating_sub(front)
    }

    /// Returns the number of nodes: the members, and the sequencer if there is one.
    pub(crate) const fn nodes(&self) -> u32 {
        self.members + self.method.has_sequencer() as u32
    }

    /// Returns whether `to` is a valid destination.
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

/// Reason why a configuration is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The process id is out of range.
    #[error("process {process} is none of the {nodes} nodes of the group")]
    Process {
        /// The process id.
        process: u32,
        /// Number of nodes.
        nodes: u32,
    },
    /// There are more nodes than ports.
    #[error("a mesh of {0} nodes has more links than there are ports (65,535)")]
    Mesh(u32),
    /// The frame length is out of range.
    #[error("frame_len_max = {0} is too short for a message, or longer than 65,535")]
    Frame(usize),
    /// The members cannot be divided into such groups.
    #[error("{groups} groups of {group_members} among {members} members: 1 to 64 of an odd number")]
    Groups {
        /// Number of groups.
        groups: u32,
        /// Members of each group.
        group_members: u32,
        /// Number of members.
        members: u32,
    },
    /// A setting must be positive.
    #[error("{0} must be more than 0")]
    Zero(&'static str),
}
