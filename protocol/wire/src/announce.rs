//! What a node tells the controllers of its links.

use onepipe_base::{Life, Port, Timestamp, WireTimestamp};
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::DecodeError;

/// Octets of an announcement before its links.
pub const ANNOUNCE_HEADER_OCTETS: usize = 12;
/// Octets of a link in it.
pub const LINK_OCTETS: usize = 24;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Front {
    generation: U32,
    first: U16,
    total: U16,
    count: U16,
    reserved: U16,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct LinkLayout {
    port: U16,
    state: u8,
    side: u8,
    address: U32,
    incarnation: U32,
    number: U32,
    commit: U64,
}

const _: () = assert!(size_of::<Front>() == ANNOUNCE_HEADER_OCTETS);
const _: () = assert!(size_of::<LinkLayout>() == LINK_OCTETS);

/// What the node knows of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkState {
    /// Heard, and hears.
    Up,
    /// Dead, and holding commits until it is resolved.
    Frozen {
        /// The node's own number of this death.
        number: u32,
        /// The last commit promised on it.
        commit: Timestamp,
    },
}

/// Where a link leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Side {
    /// Towards the processes.
    Lower = 0,
    /// Towards the roots.
    Upper = 1,
    /// From one process to another, without a switch.
    Direct = 2,
}

/// One link of an announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Link {
    /// The node's own number for it.
    pub port: Port,
    /// Where it leads.
    pub side: Side,
    /// Who is, or was, at its other end.
    pub life: Option<Life>,
    /// What is known of it.
    pub state: LinkState,
}

/// One part of what a node announces: the header's source and incarnation say who.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announce {
    /// Rises with every change; parts of different generations do not belong together.
    pub generation: u32,
    /// The place of this part's first link among all of this generation.
    pub first: u16,
    /// How many links this generation has in all.
    pub total: u16,
}

impl Announce {
    /// Writes as many of `links` as fit; they are those from place `first` on, `total - first` at
    /// most. Answers how many, and the octets used; `None` when not even the front fits.
    pub fn write(
        &self,
        room: &mut [u8],
        links: impl Iterator<Item = Link>,
    ) -> Option<(u16, usize)> {
        let (front, rest) = room.split_at_mut_checked(ANNOUNCE_HEADER_OCTETS)?;
        let mut count = 0u16;
        let places = rest.chunks_exact_mut(LINK_OCTETS).take(u16::MAX.into());
        for (place, link) in places.zip(links) {
            place.copy_from_slice(lay_out(link).as_bytes());
            count += 1;
        }
        let layout = Front {
            generation: U32::new(self.generation),
            first: U16::new(self.first),
            total: U16::new(self.total),
            count: U16::new(count),
            reserved: U16::ZERO,
        };
        front.copy_from_slice(layout.as_bytes());
        Some((count, ANNOUNCE_HEADER_OCTETS + usize::from(count) * LINK_OCTETS))
    }
}

fn lay_out(link: Link) -> LinkLayout {
    let (address, incarnation) = Life::to_words(link.life);
    let (state, number, commit) = match link.state {
        LinkState::Up => (0, 0, 0),
        LinkState::Frozen { number, commit } => (1, number, commit.to_wire().bits()),
    };
    LinkLayout {
        port: U16::new(link.port.0),
        state,
        side: link.side as u8,
        address: U32::new(address),
        incarnation: U32::new(incarnation),
        number: U32::new(number),
        commit: U64::new(commit),
    }
}

/// An announcement read from a payload, its links still in place.
#[derive(Clone, Copy, Debug)]
pub struct AnnounceView<'a> {
    /// The front.
    pub announce: Announce,
    links: &'a [LinkLayout],
}

impl<'a> AnnounceView<'a> {
    /// Reads the payload of a frame with opcode [`crate::Opcode::Announce`].
    ///
    /// # Errors
    /// When it is too short for what it announces, or a link makes no sense.
    pub fn parse(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let truncated =
            |need| DecodeError::Truncated { part: "announcement", need, got: payload.len() };
        let (front, rest) =
            Front::ref_from_prefix(payload).map_err(|_| truncated(ANNOUNCE_HEADER_OCTETS))?;
        let (first, count) = (front.first.get(), front.count.get());
        let need = ANNOUNCE_HEADER_OCTETS + usize::from(count) * LINK_OCTETS;
        let links = <[LinkLayout]>::ref_from_prefix_with_elems(rest, usize::from(count));
        let (links, _) = links.map_err(|_| truncated(need))?;
        let total = front.total.get();
        if u32::from(first) + u32::from(count) > u32::from(total) {
            return Err(DecodeError::Field { field: "links in all", value: total.into() });
        }
        for link in links {
            if link.state > 1 {
                let value = u64::from(link.state);
                return Err(DecodeError::Field { field: "state of a link", value });
            }
            if link.side > Side::Direct as u8 {
                let value = u64::from(link.side);
                return Err(DecodeError::Field { field: "side of a link", value });
            }
        }
        Ok(Self { announce: Announce { generation: front.generation.get(), first, total }, links })
    }

    /// Its links, their commits expanded against `near`.
    pub fn links(&self, near: Timestamp) -> impl ExactSizeIterator<Item = Link> + 'a {
        self.links.iter().map(move |link| Link {
            port: Port(link.port.get()),
            side: match link.side {
                0 => Side::Lower,
                1 => Side::Upper,
                _ => Side::Direct,
            },
            life: Life::from_words((link.address.get(), link.incarnation.get())),
            state: match link.state {
                0 => LinkState::Up,
                _ => LinkState::Frozen {
                    number: link.number.get(),
                    commit: expand(link.commit.get(), near),
                },
            },
        })
    }
}

/// A timestamp from its 48 bits in a 64-bit field.
pub(crate) fn expand(bits: u64, near: Timestamp) -> Timestamp {
    Timestamp::from_wire(WireTimestamp::from_bits(bits), near)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use onepipe_base::{Address, Incarnation, ProcessId, SwitchId};

    extern crate alloc;

    fn links() -> [Link; 3] {
        let life =
            |address, incarnation| Some(Life { address, incarnation: Incarnation(incarnation) });
        let (number, commit) = (3, Timestamp::from_ns((1 << 48) + 5));
        [
            Link {
                port: Port(0),
                side: Side::Lower,
                life: life(Address::Process(ProcessId(9)), 2),
                state: LinkState::Up,
            },
            Link {
                port: Port(1),
                side: Side::Lower,
                life: None,
                state: LinkState::Frozen { number, commit },
            },
            Link {
                port: Port(4),
                side: Side::Upper,
                life: life(Address::Switch(SwitchId(7)), 1),
                state: LinkState::Up,
            },
        ]
    }

    #[test]
    fn links_survive_the_wire_in_parts() {
        let mut room = [0; ANNOUNCE_HEADER_OCTETS + 2 * LINK_OCTETS + 5];
        let announce = Announce { generation: 8, first: 0, total: 3 };
        let written = announce.write(&mut room, links().into_iter());
        let (count, octets) = written.expect("two fit");
        assert_eq!((count, octets), (2, ANNOUNCE_HEADER_OCTETS + 2 * LINK_OCTETS));
        let view = AnnounceView::parse(&room[..octets]).expect("just written");
        assert_eq!(view.announce, announce);
        let near = Timestamp::from_ns(1 << 48);
        assert_eq!(view.links(near).collect::<Vec<_>>(), links()[..2]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let mut room = [0; ANNOUNCE_HEADER_OCTETS + 3 * LINK_OCTETS];
        let announce = Announce { generation: 8, first: 0, total: 3 };
        announce.write(&mut room, links().into_iter()).expect("all fit");
        for octets in 0..room.len() {
            assert!(AnnounceView::parse(&room[..octets]).is_err());
        }
        for (at, value) in
            [(7, 2), (ANNOUNCE_HEADER_OCTETS + 2, 2), (ANNOUNCE_HEADER_OCTETS + 3, 3)]
        {
            let mut broken = room;
            broken[at] = value;
            let refused = AnnounceView::parse(&broken);
            assert!(matches!(refused, Err(DecodeError::Field { .. })), "{at}: {refused:?}");
        }
    }
}
