//! What carries a group's frames, and how a machine is set up for it.

use onepipe_base::{Incarnation, Port, ProcessId};
use onepipe_bulk::{Config, GroupId, Link, Member, PIECE_FRONT_LEN};

/// Bytes of a piece where nothing is cut into packets by us: the longest frame is 65,587 bytes,
/// and whole pages are quicker.
const STREAM_PIECE_LEN: u32 = 61_440;

/// Bytes of a piece in a frame that fits an Ethernet frame, behind the headers of IPv4 and UDP.
const PACKET_PIECE_LEN: u32 = 1_472 - PIECE_FRONT_LEN as u32;

/// What carries a group's frames. All members of a group must say the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Carrier {
    /// A TCP connection between each two members.
    #[default]
    Tcp,
    /// UDP, with reliability and congestion control of our own. Members meet over TCP; then each
    /// has a socket of its own.
    Udp,
    /// Memory that all members share, on one host. They meet over TCP.
    Shm,
}

impl Carrier {
    /// All that there are.
    pub const ALL: &[Self] = &[Self::Tcp, Self::Udp, Self::Shm];

    /// What people call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Shm => "shm",
        }
    }

    /// The one of this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|carrier| carrier.name() == name)
    }

    /// What its links do with frames.
    pub const fn link(self) -> Link {
        match self {
            Self::Tcp | Self::Shm => Link::Reliable,
            Self::Udp => Link::Lossy,
        }
    }

    /// Bytes of a block that one frame carries.
    pub const fn piece_len(self) -> u32 {
        match self {
            // Shared memory has no use for it: frames carry no bytes of objects.
            Self::Tcp | Self::Shm => STREAM_PIECE_LEN,
            Self::Udp => PACKET_PIECE_LEN,
        }
    }

    /// The defaults of a machine that [`crate::GroupDriver`] drives over it: rank `own` of `members`, all
    /// numbered by rank.
    pub fn config(self, group: u64, members: usize, own: u32) -> Config {
        let member = |rank: usize| Member {
            process: ProcessId(rank as u32),
            port: Port(rank as u16),
            link: self.link(),
        };
        // A link is met for one life: who comes back is another one, and not of this group.
        let incarnation = Incarnation(1);
        let piece_len = self.piece_len();
        let config = Config {
            piece_len,
            frame_len_max: PIECE_FRONT_LEN + piece_len as usize,
            ..Config::new(GroupId(group), (0..members).map(member).collect(), own, incarnation)
        };
        self.adapt(config)
    }

    /// What must be so over it, whatever else was chosen.
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
            let group = Group::new(carrier.config(7, 3, 2)).expect("it can be");
            let config = group.config();
            assert_eq!((config.group, config.own, config.members.len()), (GroupId(7), 2, 3));
            for (rank, member) in (0..).zip(&config.members) {
                assert_eq!((member.port, member.link), (Port(rank), carrier.link()));
            }
        }
        assert_eq!(Carrier::by_name("pigeon"), None);
    }
}
