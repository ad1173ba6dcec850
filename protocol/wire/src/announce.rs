//! Link-state announcements of a node to the controllers.

use onepipe_base::{Cause, Instance, Port, Timestamp, WireTimestamp};
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::DecodeError;
use crate::tip::{DECISION_TIP_LEN, DecisionTip};

/// Length of an announcement without its links.
pub const ANNOUNCE_HEADER_LEN: usize = 12;
/// Length of a link entry.
pub const LINK_LEN: usize = 24;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Front {
    generation: U32,
    first: U16,
    total: U16,
    count: U16,
    flags: U16,
}

/// Flag: a [`DecisionTip`] follows the links.
const HAS_TIP: u16 = 1;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct LinkLayout {
    port: U16,
    state: u8,
    side: u8,
    address: U32,
    incarnation: U32,
    number: U32,
    /// The upper 16 bits are no part of the timestamp; the lowest three of the first byte are the
    /// cause.
    commit: U64,
}

const _: () = assert!(size_of::<Front>() == ANNOUNCE_HEADER_LEN);
const _: () = assert!(size_of::<LinkLayout>() == LINK_LEN);

/// State of a link, as its node sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkState {
    /// Both ends receive each other's frames.
    Up,
    /// Dead, and holding commits until it is resolved.
    Frozen {
        /// The node's own number of this failure.
        number: u32,
        /// The last commit promised on the link.
        commit: Timestamp,
        /// Why the link died.
        cause: Cause,
    },
}

/// Direction of a link in the topology.
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
    /// The node's own number of the link.
    pub port: Port,
    /// Its direction.
    pub side: Side,
    /// The instance that is, or was, at the other end, if it is known.
    pub instance: Option<Instance>,
    /// Its state.
    pub state: LinkState,
}

/// One part of a node's announcement; the frame's source and incarnation name the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announce {
    /// Rises with every change; parts of different generations must not be combined.
    pub generation: u32,
    /// Index of the first link in this part.
    pub first: u16,
    /// Number of links in all parts of this generation.
    pub total: u16,
    /// The end of the controllers' log that the node has received last, if any.
    pub tip: Option<DecisionTip>,
}

impl Announce {
    /// Writes as many of `links` as fit: those from index `first` on, at most `total - first`.
    /// Returns their number and the length; `None` if not even the header fits.
    pub fn write(&self, buf: &mut [u8], links: impl Iterator<Item = Link>) -> Option<(u16, usize)> {
        let (front, rest) = buf.split_at_mut_checked(ANNOUNCE_HEADER_LEN)?;
        let tip_len = self.tip.map_or(0, |_| DECISION_TIP_LEN);
        let links_len = rest.len().checked_sub(tip_len)?;
        let mut count = 0u16;
        let slots = rest[..links_len].chunks_exact_mut(LINK_LEN).take(u16::MAX.into());
        for (slot, link) in slots.zip(links) {
            slot.copy_from_slice(to_layout(link).as_bytes());
            count += 1;
        }
        let layout = Front {
            generation: U32::new(self.generation),
            first: U16::new(self.first),
            total: U16::new(self.total),
            count: U16::new(count),
            flags: U16::new(if self.tip.is_some() { HAS_TIP } else { 0 }),
        };
        front.copy_from_slice(layout.as_bytes());
        let links_len = usize::from(count) * LINK_LEN;
        if let Some(tip) = self.tip {
            tip.write(&mut rest[links_len..])?;
        }
        Some((count, ANNOUNCE_HEADER_LEN + links_len + tip_len))
    }
}

fn to_layout(link: Link) -> LinkLayout {
    let (address, incarnation) = Instance::to_words(link.instance);
    let (state, number, commit) = match link.state {
        LinkState::Up => (0, 0, 0),
        LinkState::Frozen { number, commit, cause } => (1, number, with_cause(commit, cause)),
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

/// A parsed announcement, with its links borrowed from the payload.
#[derive(Clone, Copy, Debug)]
pub struct AnnounceView<'a> {
    /// The header of the announcement.
    pub announce: Announce,
    links: &'a [LinkLayout],
}

impl<'a> AnnounceView<'a> {
    /// Parses the payload of a frame with opcode [`crate::Opcode::Announce`].
    ///
    /// # Errors
    /// If it is shorter than it claims, or a link entry is invalid.
    pub fn parse(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let truncated =
            |need| DecodeError::Truncated { part: "announcement", need, got: payload.len() };
        let (front, rest) =
            Front::ref_from_prefix(payload).map_err(|_| truncated(ANNOUNCE_HEADER_LEN))?;
        let (first, count) = (front.first.get(), front.count.get());
        let need = ANNOUNCE_HEADER_LEN + usize::from(count) * LINK_LEN;
        let links = <[LinkLayout]>::ref_from_prefix_with_elems(rest, usize::from(count));
        let (links, rest) = links.map_err(|_| truncated(need))?;
        let total = front.total.get();
        if u32::from(first) + u32::from(count) > u32::from(total) {
            return Err(DecodeError::Field { field: "total number of links", value: total.into() });
        }
        for link in links {
            if link.state > 1 {
                let value = u64::from(link.state);
                return Err(DecodeError::Field { field: "link state", value });
            }
            if link.side > Side::Direct as u8 {
                let value = u64::from(link.side);
                return Err(DecodeError::Field { field: "link direction", value });
            }
        }
        let has_tip = front.flags.get() & HAS_TIP != 0;
        let tip = has_tip.then(|| DecisionTip::parse(rest)).transpose()?;
        let generation = front.generation.get();
        Ok(Self { announce: Announce { generation, first, total, tip }, links })
    }

    /// Returns the links, their commits expanded against `near`.
    pub fn links(&self, near: Timestamp) -> impl ExactSizeIterator<Item = Link> + 'a {
        self.links.iter().map(move |link| Link {
            port: Port(link.port.get()),
            side: match link.side {
                0 => Side::Lower,
                1 => Side::Upper,
                _ => Side::Direct,
            },
            instance: Instance::from_words(link.address.get(), link.incarnation.get()),
            state: match link.state {
                0 => LinkState::Up,
                _ => LinkState::Frozen {
                    number: link.number.get(),
                    commit: expand(link.commit.get(), near),
                    cause: cause_of(link.commit.get()),
                },
            },
        })
    }
}

/// Expands a 48-bit timestamp in a 64-bit field.
pub(crate) fn expand(bits: u64, near: Timestamp) -> Timestamp {
    Timestamp::from_wire(WireTimestamp::from_bits(bits), near)
}

//= spec/failure.md#R48
/// Returns a 48-bit timestamp in a 64-bit field, with a cause in the first byte.
pub(crate) fn with_cause(at: Timestamp, cause: Cause) -> u64 {
    at.to_wire().bits() | u64::from(cause.bits()) << CAUSE_SHIFT
}

/// Returns the cause in the first byte of a 64-bit field.
pub(crate) fn cause_of(bits: u64) -> Cause {
    Cause::from_bits((bits >> CAUSE_SHIFT) as u8)
}

/// Position of the cause in a 64-bit field that has a 48-bit timestamp.
const CAUSE_SHIFT: u32 = 56;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use onepipe_base::{Address, Incarnation, ProcessId, SwitchId};

    extern crate alloc;

    fn links() -> [Link; 3] {
        let instance = |address, incarnation| {
            Some(Instance { address, incarnation: Incarnation(incarnation) })
        };
        let (number, commit) = (3, Timestamp::from_ns((1 << 48) + 5));
        [
            Link {
                port: Port(0),
                side: Side::Lower,
                instance: instance(Address::Process(ProcessId(9)), 2),
                state: LinkState::Up,
            },
            Link {
                port: Port(1),
                side: Side::Lower,
                instance: None,
                state: LinkState::Frozen { number, commit, cause: Cause::Left },
            },
            Link {
                port: Port(4),
                side: Side::Upper,
                instance: instance(Address::Switch(SwitchId(7)), 1),
                state: LinkState::Up,
            },
        ]
    }

    #[test]
    fn links_round_trip_in_parts() {
        let mut buf = [0; ANNOUNCE_HEADER_LEN + 2 * LINK_LEN + 5];
        let announce = Announce { generation: 8, first: 0, total: 3, tip: None };
        let written = announce.write(&mut buf, links().into_iter());
        let (count, bytes) = written.expect("two fit");
        assert_eq!((count, bytes), (2, ANNOUNCE_HEADER_LEN + 2 * LINK_LEN));
        let view = AnnounceView::parse(&buf[..bytes]).expect("just written");
        assert_eq!(view.announce, announce);
        let near = Timestamp::from_ns(1 << 48);
        assert_eq!(view.links(near).collect::<Vec<_>>(), links()[..2]);
    }

    #[test]
    fn tip_follows_the_links() {
        let mut buf = [0; ANNOUNCE_HEADER_LEN + 3 * LINK_LEN];
        let tip = DecisionTip {
            epoch: 2,
            decided: 1,
            digest: 9,
            replica: ProcessId(60),
            incarnation: Incarnation(4),
        };
        let announce = Announce { generation: 8, first: 0, total: 3, tip: Some(tip) };
        let written = announce.write(&mut buf, links().into_iter());
        let (count, bytes) = written.expect("two links and a tip fit");
        assert_eq!((count, bytes), (2, ANNOUNCE_HEADER_LEN + 2 * LINK_LEN + DECISION_TIP_LEN));
        let view = AnnounceView::parse(&buf[..bytes]).expect("just written");
        assert_eq!(view.announce, announce);
        assert!(AnnounceView::parse(&buf[..bytes - 1]).is_err());
    }

    #[test]
    fn refuses_invalid_entries() {
        let mut buf = [0; ANNOUNCE_HEADER_LEN + 3 * LINK_LEN];
        let announce = Announce { generation: 8, first: 0, total: 3, tip: None };
        announce.write(&mut buf, links().into_iter()).expect("all fit");
        for bytes in 0..buf.len() {
            assert!(AnnounceView::parse(&buf[..bytes]).is_err());
        }
        for (at, value) in [(7, 2), (ANNOUNCE_HEADER_LEN + 2, 2), (ANNOUNCE_HEADER_LEN + 3, 3)] {
            let mut broken = buf;
            broken[at] = value;
            let refused = AnnounceView::parse(&broken);
            assert!(matches!(refused, Err(DecodeError::Field { .. })), "{at}: {refused:?}");
        }
    }
}
