//! Messages about payloads that travel on the side, by bulk multicast (design: large.md).
//!
//! They are messages of the ordered services like any other; eight octets at the front tell them
//! apart, and a program's own message that begins with the same eight is written as one of them.

use onepipe_base::ProcessId;
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::DecodeError;

/// The octets at the front of each of them: no text, and no small number in either order.
const MARK: [u8; 8] = [0xf1, 0x1b, 0x9d, 0xc4, 0x27, 0xe8, 0x5a, 0xb3];
/// Octets before the members of an invitation.
pub const INVITATION_OCTETS: usize = 48;
/// Octets of a descriptor.
pub const DESCRIPTOR_OCTETS: usize = 40;
/// Octets of a word that an object is withdrawn.
pub const WITHDRAWN_OCTETS: usize = 24;
/// Octets before a program's own message that begins as these do.
pub const QUOTE_OCTETS: usize = 16;

const QUOTED: u8 = 1;
const INVITATION: u8 = 2;
const DESCRIPTOR: u8 = 3;
const WITHDRAWN: u8 = 4;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Front {
    mark: [u8; 8],
    kind: u8,
    reserved: [u8; 7],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ObjectLayout {
    group: U64,
    octets: U64,
    digest: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct PlanLayout {
    block_octets: U32,
    piece_octets: U16,
    members: U16,
}

const _: () = assert!(size_of::<Front>() == QUOTE_OCTETS);
const _: () = assert!(size_of::<Front>() + size_of::<ObjectLayout>() == DESCRIPTOR_OCTETS);
const _: () = assert!(DESCRIPTOR_OCTETS + size_of::<PlanLayout>() == INVITATION_OCTETS);
const _: () = assert!(size_of::<Front>() + size_of::<U64>() == WITHDRAWN_OCTETS);

/// A payload that travels on the side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LargeObject {
    /// The bulk group that brings it: a number of its sender's, higher than those before.
    pub group: u64,
    /// How many octets it has.
    pub octets: u64,
    /// XXH3-64 of all of them.
    pub digest: u64,
}

/// A message about payloads that travel on the side, still where it was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LargeNote<'a> {
    /// A program's own message, which begins as these do.
    Quoted(&'a [u8]),
    /// A payload is on its way: whoever hears this takes part in its group.
    Invitation {
        /// What comes.
        object: LargeObject,
        /// Octets of a block.
        block_octets: u32,
        /// Octets of a piece.
        piece_octets: u16,
        /// Who takes part, the sender first.
        members: LargeMembers<'a>,
    },
    /// The payload, which has come before, has this place in the order.
    Descriptor(LargeObject),
    /// The payload that this group has brought will have no place in the order.
    Withdrawn(u64),
}

/// The members of an invitation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargeMembers<'a>(&'a [U32]);

impl LargeMembers<'_> {
    /// One by one, the sender first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = ProcessId> {
        self.0.iter().map(|process| ProcessId(process.get()))
    }
}

impl<'a> LargeNote<'a> {
    /// Whether a message is one of these.
    #[inline]
    pub fn is_one(message: &[u8]) -> bool {
        message.starts_with(&MARK)
    }

    /// Reads a message. `None`: it is none of these, but a program's.
    ///
    /// # Errors
    /// When it is one, and cut short or of a kind that this version does not know.
    #[inline]
    pub fn parse(message: &'a [u8]) -> Result<Option<Self>, DecodeError> {
        if Self::is_one(message) { Self::parse_marked(message).map(Some) } else { Ok(None) }
    }

    fn parse_marked(message: &'a [u8]) -> Result<Self, DecodeError> {
        let cut_short = |need| {
            let got = message.len();
            DecodeError::Truncated { part: "note of a large payload", need, got }
        };
        let (front, rest) = Front::ref_from_prefix(message).map_err(|_| cut_short(QUOTE_OCTETS))?;
        let object = || {
            let (layout, rest) =
                ObjectLayout::ref_from_prefix(rest).map_err(|_| cut_short(DESCRIPTOR_OCTETS))?;
            let (group, octets, digest) =
                (layout.group.get(), layout.octets.get(), layout.digest.get());
            Ok((LargeObject { group, octets, digest }, rest))
        };
        match front.kind {
            QUOTED => Ok(Self::Quoted(rest)),
            INVITATION => {
                let (object, rest) = object()?;
                let (plan, rest) =
                    PlanLayout::ref_from_prefix(rest).map_err(|_| cut_short(INVITATION_OCTETS))?;
                let count = usize::from(plan.members.get());
                let (members, _) = <[U32]>::ref_from_prefix_with_elems(rest, count)
                    .map_err(|_| cut_short(INVITATION_OCTETS + count * size_of::<U32>()))?;
                let (block_octets, piece_octets) =
                    (plan.block_octets.get(), plan.piece_octets.get());
                let members = LargeMembers(members);
                Ok(Self::Invitation { object, block_octets, piece_octets, members })
            }
            DESCRIPTOR => Ok(Self::Descriptor(object()?.0)),
            WITHDRAWN => {
                let (group, _) =
                    U64::ref_from_prefix(rest).map_err(|_| cut_short(WITHDRAWN_OCTETS))?;
                Ok(Self::Withdrawn(group.get()))
            }
            kind => Err(DecodeError::Field {
                field: "kind of a note of a large payload",
                value: kind.into(),
            }),
        }
    }

    /// Writes a program's own message as one of these, behind what `put` has been given.
    pub fn write_quoted(message: &[u8], mut put: impl FnMut(&[u8])) {
        put(front(QUOTED).as_bytes());
        put(message);
    }

    /// Writes an invitation.
    pub fn write_invitation(
        object: LargeObject,
        (block_octets, piece_octets): (u32, u16),
        members: impl ExactSizeIterator<Item = ProcessId>,
        mut put: impl FnMut(&[u8]),
    ) {
        write_object(INVITATION, object, &mut put);
        let plan = PlanLayout {
            block_octets: U32::new(block_octets),
            piece_octets: U16::new(piece_octets),
            members: U16::new(members.len() as u16),
        };
        put(plan.as_bytes());
        members.for_each(|process| put(U32::new(process.0).as_bytes()));
    }

    /// Writes a descriptor.
    pub fn write_descriptor(object: LargeObject, mut put: impl FnMut(&[u8])) {
        write_object(DESCRIPTOR, object, &mut put);
    }

    /// Writes that what `group` has brought will not be ordered.
    pub fn write_withdrawn(group: u64, mut put: impl FnMut(&[u8])) {
        put(front(WITHDRAWN).as_bytes());
        put(U64::new(group).as_bytes());
    }
}

fn front(kind: u8) -> Front {
    Front { mark: MARK, kind, reserved: [0; 7] }
}

fn write_object(kind: u8, object: LargeObject, put: &mut impl FnMut(&[u8])) {
    put(front(kind).as_bytes());
    let layout = ObjectLayout {
        group: U64::new(object.group),
        octets: U64::new(object.octets),
        digest: U64::new(object.digest),
    };
    put(layout.as_bytes());
}

#[cfg(test)]
mod tests {
    extern crate alloc;
    use alloc::vec::Vec;

    use super::*;

    const OBJECT: LargeObject =
        LargeObject { group: 0x0102_0304_0506_0708, octets: 1 << 20, digest: 0xfeed };

    fn written(write: impl FnOnce(&mut dyn FnMut(&[u8]))) -> Vec<u8> {
        let mut octets = Vec::new();
        write(&mut |part: &[u8]| octets.extend_from_slice(part));
        octets
    }

    #[test]
    fn what_is_written_is_read() {
        let members = [ProcessId(9), ProcessId(2), ProcessId(70_000)];
        let octets = written(|put| {
            LargeNote::write_invitation(OBJECT, (65_536, 1_304), members.into_iter(), put);
        });
        assert_eq!(octets.len(), INVITATION_OCTETS + 12);
        let Ok(Some(LargeNote::Invitation { object, block_octets, piece_octets, members: read })) =
            LargeNote::parse(&octets)
        else {
            panic!("{octets:?}")
        };
        assert_eq!((object, block_octets, piece_octets), (OBJECT, 65_536, 1_304));
        assert!(read.iter().eq(members));

        let octets = written(|put| LargeNote::write_descriptor(OBJECT, put));
        assert_eq!(octets.len(), DESCRIPTOR_OCTETS);
        assert_eq!(LargeNote::parse(&octets), Ok(Some(LargeNote::Descriptor(OBJECT))));
        assert_eq!(octets[..9], [0xf1, 0x1b, 0x9d, 0xc4, 0x27, 0xe8, 0x5a, 0xb3, 3]);
        assert_eq!(octets[16..24], [1, 2, 3, 4, 5, 6, 7, 8]);

        let octets = written(|put| LargeNote::write_withdrawn(77, put));
        assert_eq!(octets.len(), WITHDRAWN_OCTETS);
        assert_eq!(LargeNote::parse(&octets), Ok(Some(LargeNote::Withdrawn(77))));
    }

    #[test]
    fn a_program_may_say_anything() {
        for message in [&b""[..], b"hello", &MARK[..7]] {
            assert_eq!(LargeNote::parse(message), Ok(None));
        }
        let own = written(|put| LargeNote::write_withdrawn(1, put));
        let quoted = written(|put| LargeNote::write_quoted(&own, put));
        assert_eq!(LargeNote::parse(&quoted), Ok(Some(LargeNote::Quoted(&own))));
    }

    #[test]
    fn what_is_cut_short_or_unknown_is_refused() {
        let members = [ProcessId(1), ProcessId(2)];
        let invitation = written(|put| {
            LargeNote::write_invitation(OBJECT, (1, 1), members.into_iter(), put);
        });
        for octets in MARK.len()..invitation.len() {
            assert!(LargeNote::parse(&invitation[..octets]).is_err(), "{octets} octets");
        }
        let mut unknown = invitation;
        unknown[8] = 5;
        assert!(LargeNote::parse(&unknown).is_err());
    }
}
