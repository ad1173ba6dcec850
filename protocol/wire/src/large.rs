//! Control messages about large payloads, whose bytes travel by bulk multicast
//! (docs/design/large.md).
//!
//! Control messages are messages of the ordered services that begin with a magic number of eight
//! bytes. An application message that begins with the same eight bytes is escaped.

use onepipe_base::ProcessId;
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::DecodeError;

/// The magic number: not valid UTF-8, and no small integer in either byte order.
const MAGIC: [u8; 8] = [0xf1, 0x1b, 0x9d, 0xc4, 0x27, 0xe8, 0x5a, 0xb3];
/// Length of an invitation without its members.
pub const INVITATION_LEN: usize = 48;
/// Length of a descriptor.
pub const DESCRIPTOR_LEN: usize = 40;
/// Length of a withdrawal.
pub const WITHDRAWN_LEN: usize = 24;
/// Length of the header before an escaped application message.
pub const ESCAPE_HEADER_LEN: usize = 16;

const ESCAPED: u8 = 1;
const INVITATION: u8 = 2;
const DESCRIPTOR: u8 = 3;
const WITHDRAWN: u8 = 4;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Front {
    magic: [u8; 8],
    kind: u8,
    reserved: [u8; 7],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ObjectLayout {
    group: U64,
    bytes: U64,
    digest: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct GroupLayout {
    block_len: U32,
    piece_len: U16,
    members: U16,
}

const _: () = assert!(size_of::<Front>() == ESCAPE_HEADER_LEN);
const _: () = assert!(size_of::<Front>() + size_of::<ObjectLayout>() == DESCRIPTOR_LEN);
const _: () = assert!(DESCRIPTOR_LEN + size_of::<GroupLayout>() == INVITATION_LEN);
const _: () = assert!(size_of::<Front>() + size_of::<U64>() == WITHDRAWN_LEN);

/// A payload that travels by bulk multicast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LargeObject {
    /// The bulk group that carries it: a number chosen by the sender, higher than all before.
    pub group: u64,
    /// Length of the payload.
    pub bytes: u64,
    /// XXH3-64 of the payload.
    pub digest: u64,
}

/// A control message about a large payload, borrowed from its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LargeControl<'a> {
    /// An application message that begins with the magic number.
    Escaped(&'a [u8]),
    /// A payload is about to be sent: the receiver should join its group.
    Invitation {
        /// The payload.
        object: LargeObject,
        /// Length of each block but the last.
        block_len: u32,
        /// Length of each piece but the last.
        piece_len: u16,
        /// The members of the group, the sender first.
        members: LargeMembers<'a>,
    },
    /// Places the payload, which was sent before, in the order of messages.
    Descriptor(LargeObject),
    /// The payload of this group will not be delivered.
    Withdrawn(u64),
}

/// The members of an invitation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargeMembers<'a>(&'a [U32]);

impl LargeMembers<'_> {
    /// Returns the members, the sender first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = ProcessId> {
        self.0.iter().map(|process| ProcessId(process.get()))
    }
}

impl<'a> LargeControl<'a> {
    /// Returns whether a message begins with the magic number.
    #[inline]
    pub fn is_control(message: &[u8]) -> bool {
        message.starts_with(&MAGIC)
    }

    /// Parses a message. Returns `None` for an ordinary application message.
    ///
    /// # Errors
    /// If it is a control message that is truncated or of an unknown kind.
    #[inline]
    pub fn parse(message: &'a [u8]) -> Result<Option<Self>, DecodeError> {
        if Self::is_control(message) { Self::parse_control(message).map(Some) } else { Ok(None) }
    }

    fn parse_control(message: &'a [u8]) -> Result<Self, DecodeError> {
        let truncated = |need| {
            let got = message.len();
            DecodeError::Truncated { part: "large-payload control message", need, got }
        };
        let (front, rest) =
            Front::ref_from_prefix(message).map_err(|_| truncated(ESCAPE_HEADER_LEN))?;
        let object = || {
            let (layout, rest) =
                ObjectLayout::ref_from_prefix(rest).map_err(|_| truncated(DESCRIPTOR_LEN))?;
            let (group, bytes, digest) =
                (layout.group.get(), layout.bytes.get(), layout.digest.get());
            Ok((LargeObject { group, bytes, digest }, rest))
        };
        match front.kind {
            ESCAPED => Ok(Self::Escaped(rest)),
            INVITATION => {
                let (object, rest) = object()?;
                let (group_layout, rest) =
                    GroupLayout::ref_from_prefix(rest).map_err(|_| truncated(INVITATION_LEN))?;
                let count = usize::from(group_layout.members.get());
                let (members, _) = <[U32]>::ref_from_prefix_with_elems(rest, count)
                    .map_err(|_| truncated(INVITATION_LEN + count * size_of::<U32>()))?;
                let (block_len, piece_len) =
                    (group_layout.block_len.get(), group_layout.piece_len.get());
                let members = LargeMembers(members);
                Ok(Self::Invitation { object, block_len, piece_len, members })
            }
            DESCRIPTOR => Ok(Self::Descriptor(object()?.0)),
            WITHDRAWN => {
                let (group, _) =
                    U64::ref_from_prefix(rest).map_err(|_| truncated(WITHDRAWN_LEN))?;
                Ok(Self::Withdrawn(group.get()))
            }
            kind => Err(DecodeError::Field {
                field: "kind of large-payload control message",
                value: kind.into(),
            }),
        }
    }

    /// Writes an application message, escaped.
    pub fn write_escaped(message: &[u8], mut put: impl FnMut(&[u8])) {
        put(front(ESCAPED).as_bytes());
        put(message);
    }

    /// Writes an invitation.
    pub fn write_invitation(
        object: LargeObject,
        block_len: u32,
        piece_len: u16,
        members: impl ExactSizeIterator<Item = ProcessId>,
        mut put: impl FnMut(&[u8]),
    ) {
        write_object(INVITATION, object, &mut put);
        let group_layout = GroupLayout {
            block_len: U32::new(block_len),
            piece_len: U16::new(piece_len),
            members: U16::new(members.len() as u16),
        };
        put(group_layout.as_bytes());
        members.for_each(|process| put(U32::new(process.0).as_bytes()));
    }

    /// Writes a descriptor.
    pub fn write_descriptor(object: LargeObject, mut put: impl FnMut(&[u8])) {
        write_object(DESCRIPTOR, object, &mut put);
    }

    /// Writes a withdrawal of the payload of `group`.
    pub fn write_withdrawn(group: u64, mut put: impl FnMut(&[u8])) {
        put(front(WITHDRAWN).as_bytes());
        put(U64::new(group).as_bytes());
    }
}

fn front(kind: u8) -> Front {
    Front { magic: MAGIC, kind, reserved: [0; 7] }
}

fn write_object(kind: u8, object: LargeObject, put: &mut impl FnMut(&[u8])) {
    put(front(kind).as_bytes());
    let layout = ObjectLayout {
        group: U64::new(object.group),
        bytes: U64::new(object.bytes),
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
        LargeObject { group: 0x0102_0304_0506_0708, bytes: 1 << 20, digest: 0xfeed };

    fn written(write: impl FnOnce(&mut dyn FnMut(&[u8]))) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut |part: &[u8]| bytes.extend_from_slice(part));
        bytes
    }

    #[test]
    fn control_messages_round_trip() {
        let members = [ProcessId(9), ProcessId(2), ProcessId(70_000)];
        let bytes = written(|put| {
            LargeControl::write_invitation(OBJECT, 65_536, 1_304, members.into_iter(), put);
        });
        assert_eq!(bytes.len(), INVITATION_LEN + 12);
        let Ok(Some(LargeControl::Invitation { object, block_len, piece_len, members: read })) =
            LargeControl::parse(&bytes)
        else {
            panic!("{bytes:?}")
        };
        assert_eq!((object, block_len, piece_len), (OBJECT, 65_536, 1_304));
        assert!(read.iter().eq(members));

        let bytes = written(|put| LargeControl::write_descriptor(OBJECT, put));
        assert_eq!(bytes.len(), DESCRIPTOR_LEN);
        assert_eq!(LargeControl::parse(&bytes), Ok(Some(LargeControl::Descriptor(OBJECT))));
        assert_eq!(bytes[..9], [0xf1, 0x1b, 0x9d, 0xc4, 0x27, 0xe8, 0x5a, 0xb3, 3]);
        assert_eq!(bytes[16..24], [1, 2, 3, 4, 5, 6, 7, 8]);

        let bytes = written(|put| LargeControl::write_withdrawn(77, put));
        assert_eq!(bytes.len(), WITHDRAWN_LEN);
        assert_eq!(LargeControl::parse(&bytes), Ok(Some(LargeControl::Withdrawn(77))));
    }

    #[test]
    fn any_application_message_round_trips() {
        for message in [&b""[..], b"hello", &MAGIC[..7]] {
            assert_eq!(LargeControl::parse(message), Ok(None));
        }
        let own = written(|put| LargeControl::write_withdrawn(1, put));
        let escaped = written(|put| LargeControl::write_escaped(&own, put));
        assert_eq!(LargeControl::parse(&escaped), Ok(Some(LargeControl::Escaped(&own))));
    }

    #[test]
    fn refuses_truncated_and_unknown_messages() {
        let members = [ProcessId(1), ProcessId(2)];
        let invitation = written(|put| {
            LargeControl::write_invitation(OBJECT, 1, 1, members.into_iter(), put);
        });
        for bytes in MAGIC.len()..invitation.len() {
            assert!(LargeControl::parse(&invitation[..bytes]).is_err(), "{bytes} bytes");
        }
        let mut unknown = invitation;
        unknown[8] = 5;
        assert!(LargeControl::parse(&unknown).is_err());
    }
}
