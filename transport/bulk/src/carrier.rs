//! The carriers of a group's frames, and the configuration of a machine for each.

use onepipe_base::{Incarnation, Port, ProcessId};
use onepipe_bulk::{Config, GroupId, Link, Member, PIECE_FRONT_LEN};

/// Length of a piece over streams: the longest frame is 65,587 bytes, and whole pages copy faster.
pub(crate) const STREAM_PIECE_LEN: u32 = 61_440;

/// Length of a piece whose frame fits an Ethernet frame, behind the headers of IPv4 and UDP.
const PACKET_PIECE_LEN: u32 = 1_472 - PIECE_FRONT_LEN as u32;

/// The carrier of a group's frames. All members of a group must use the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Carrier {
    /// A TCP connection between each pair of members.
    #[default]
    Tcp,
    /// UDP, with reliability and congestion control of its own. Members connect over TCP first;
    /// then each has one UDP socket.
    Udp,
    /// Memory that all members share, on one host. Members connect over TCP first.
    Shm,
}

impl Carrier {
    /// All carriers.
    pub const ALL: &[Self] = &[Self::Tcp, Self::Udp, Self::Shm];

    /// The name of the carrier on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Shm => "shm",
        }
    }

    /// Returns the carrier of this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|carrier| carrier.name() == name)
    }

    /// The properties of its links.
    pub const fn link(self) -> Link {
        match self {
            Self::Tcp | Self::Shm => Link::Reliable,
            Self::Udp => Link::Lossy,
        }
    }

    /// Number of bytes of a block that one frame carries; more over UDP if all members agree on
    /// long frames.
    pub const fn piece_len(self) -> u32 {
        match self {
            // Unused over shared memory: frames carry locations instead of bytes.
            Self::Tcp | Self::Shm => STREAM_PIECE_LEN,
            Self::Udp => PACKET_PIECE_LEN,
        }
    }

    /// Returns the default configuration of a machine that [`crate::GroupDriver`] drives over this
    /// carrier: rank `own` of `members`, all numbered by rank.
    pub fn config(self, group: u64, members: usize, own: u32) -> Config {
        let member = |rank: usize| Member {
            process: ProcessId(rank as u32),
            port: Port(rank as u16),
            link: self.link(),
        };
        // A connection serves one incarnation: a restarted member cannot rejoin the group.
        let incarnation = Incarnation(1);
        let piece_len = self.piece_len();
        let config = Config {
            piece_len,
            frame_len_max: PIECE_FRONT_LEN + piece_len as usize,
            ..Config::new(GroupId(group), (0..members).map(member).collect(), own, incarnation)
        };
        self.adapt(config)
    }

    /// Overrides the settings that this carrier requires.
    pub fn adapt(self, config: Config) -> Config {
        match self {
            Self::Tcp | Self::Udp => config,
            Self::Shm => onepipe_transport_pages::shared_memory_config(config),
        }
    }
}

#[cfg(test)]
mod tests {
    use onepipe_bulk::Group;

    use super::*;

    #[test]
    fn every_carrier_has_a_name_and_a_valid_machine() {
        for carrier in Carrier::ALL.iter().copied() {
            assert_eq!(Carrier::by_name(carrier.name()), Some(carrier));
            let group = Group::new(carrier.config(7, 3, 2)).expect("the configuration is valid");
            let config = group.config();
            assert_eq!((config.group, config.own, config.members.len()), (GroupId(7), 2, 3));
            for (rank, member) in (0..).zip(&config.members) {
                assert_eq!((member.port, member.link), (Port(rank), carrier.link()));
            }
        }
        assert_eq!(Carrier::by_name("pigeon"), None);
    }
}
