//! Slot frames: packets in granted timeslots, and reports of lost ones.

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::DecodeError;

/// Length of the header of a slot frame's payload.
pub const SLOT_HEADER_LEN: usize = 12;
/// In a label, instead of a link: the switch chooses the link.
pub const ANY_LINK: u8 = 0xff;
/// Instead of a path: no path was granted because there is only one; in [`Slot::earlier`], there
/// was no such frame.
pub const NO_PATH: u8 = 0xff;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Layout {
    label: [u8; 4],
    timeslot: U32,
    path: u8,
    earlier: [u8; 3],
}

const _: () = assert!(size_of::<Layout>() == SLOT_HEADER_LEN);

/// The header of the payload of a slot frame. The PSN of the frame counts the slot frames from its
/// sender to its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    /// The path label, for source routing: byte `i` is for the `i`-th switch on the path, from 0. A
    /// switch with several next hops, up or in a bundle down, takes the link with this number
    /// modulo their count; [`ANY_LINK`] leaves the choice to the switch.
    pub label: [u8; 4],
    /// The timeslot, modulo 2^32.
    pub timeslot: u32,
    /// The granted path, as numbered by the arbiter, or [`NO_PATH`].
    pub path: u8,
    /// The paths of the preceding frames, most recent first, so that the receiver knows on which
    /// path a frame was lost.
    pub earlier: [u8; 3],
}

impl Slot {
    /// Writes the header. Returns its length, or `None` if `buf` is too small.
    #[inline]
    pub fn write(&self, buf: &mut [u8]) -> Option<usize> {
        let layout = Layout {
            label: self.label,
            timeslot: U32::new(self.timeslot),
            path: self.path,
            earlier: self.earlier,
        };
        buf.get_mut(..SLOT_HEADER_LEN)?.copy_from_slice(layout.as_bytes());
        Some(SLOT_HEADER_LEN)
    }

    /// Parses the payload of a frame with opcode [`crate::Opcode::Slot`]: its header and packets.
    ///
    /// # Errors
    /// If it does not consist of a header and whole packets.
    #[inline]
    pub fn parse(payload: &[u8]) -> Result<(Self, SlotPackets<'_>), DecodeError> {
        let Ok((layout, rest)) = Layout::ref_from_prefix(payload) else {
            let (need, got) = (SLOT_HEADER_LEN, payload.len());
            return Err(DecodeError::Truncated { part: "slot header", need, got });
        };
        let mut packets = SlotPackets { rest };
        while packets.next().is_some() {}
        if !packets.rest.is_empty() {
            let value = payload.len() as u64;
            return Err(DecodeError::Field { field: "length of slot frame", value });
        }
        let slot = Self {
            label: layout.label,
            timeslot: layout.timeslot.get(),
            path: layout.path,
            earlier: layout.earlier,
        };
        Ok((slot, SlotPackets { rest }))
    }

    /// Returns the link on which switch `nth` of the path, from 0, must forward this payload;
    /// `None` if the switch may choose.
    #[inline]
    pub fn next_link(payload: &[u8], nth: u8) -> Option<u8> {
        let (layout, _) = Layout::ref_from_prefix(payload).ok()?;
        layout.label.get(usize::from(nth)).copied().filter(|next_link| *next_link != ANY_LINK)
    }

    /// Returns the granted path of a slot frame with this payload, if it has one.
    #[inline]
    pub fn path(payload: &[u8]) -> Option<u8> {
        let (layout, _) = Layout::ref_from_prefix(payload).ok()?;
        (layout.path != NO_PATH).then_some(layout.path)
    }
}

/// Appends a packet to a slot frame. Returns the length, or `None` if it does not fit.
#[inline]
pub fn write_packet(buf: &mut [u8], packet: &[u8]) -> Option<usize> {
    let length = u16::try_from(packet.len()).ok()?;
    let entry = buf.get_mut(..2 + packet.len())?;
    entry[..2].copy_from_slice(&length.to_be_bytes());
    entry[2..].copy_from_slice(packet);
    Some(entry.len())
}

/// Iterator over the packets of a slot frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotPackets<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for SlotPackets<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let (length, rest) = U16::ref_from_prefix(self.rest).ok()?;
        let packet = rest.get(..usize::from(length.get()))?;
        self.rest = &rest[packet.len()..];
        Some(packet)
    }
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct LossLayout {
    src: U16,
    lost: U16,
    path: u8,
    reserved: u8,
}

/// Slot frames lost on one path from one sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Loss {
    /// The sender of the lost frames.
    pub src: u16,
    /// Their number since the last report.
    pub lost: u16,
    /// The path, or [`NO_PATH`].
    pub path: u8,
}

/// The payload of a loss report.
#[derive(Clone, Copy, Debug)]
pub struct Drops<'a> {
    layouts: &'a [LossLayout],
}

impl<'a> Drops<'a> {
    /// Writes as many of `losses` as fit. Returns their length.
    pub fn write(buf: &mut [u8], losses: impl Iterator<Item = Loss>) -> usize {
        let mut bytes = 0;
        for (entry, loss) in buf.chunks_exact_mut(size_of::<LossLayout>()).zip(losses) {
            let layout = LossLayout {
                src: U16::new(loss.src),
                lost: U16::new(loss.lost),
                path: loss.path,
                reserved: 0,
            };
            entry.copy_from_slice(layout.as_bytes());
            bytes += entry.len();
        }
        bytes
    }

    /// Parses the payload of a frame with opcode [`crate::Opcode::Drops`].
    ///
    /// # Errors
    /// If it does not consist of whole entries, or is empty.
    pub fn parse(payload: &'a [u8]) -> Result<Self, DecodeError> {
        match <[LossLayout]>::ref_from_bytes(payload) {
            Ok(layouts) if !layouts.is_empty() => Ok(Self { layouts }),
            _ => Err(DecodeError::Field {
                field: "length of loss report",
                value: payload.len() as u64,
            }),
        }
    }

    /// Returns the losses.
    pub fn losses(&self) -> impl ExactSizeIterator<Item = Loss> + 'a {
        self.layouts.iter().map(|layout| Loss {
            src: layout.src.get(),
            lost: layout.lost.get(),
            path: layout.path,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_selects_link_per_switch() {
        let slot =
            Slot { label: [ANY_LINK, 3, 0, ANY_LINK], timeslot: 7, path: 3, earlier: [0; 3] };
        let mut buf = [0; SLOT_HEADER_LEN];
        slot.write(&mut buf).expect("it fits");
        let next_link = |nth| Slot::next_link(&buf, nth);
        assert_eq!([0, 1, 2, 3, 4, 255].map(next_link), [None, Some(3), Some(0), None, None, None]);
        assert_eq!(Slot::next_link(&buf[1..], 1), None, "no front, no label");
        assert_eq!((Slot::path(&buf), Slot::path(&buf[1..])), (Some(3), None));
        Slot { path: NO_PATH, ..slot }.write(&mut buf).expect("it fits");
        assert_eq!(Slot::path(&buf), None);
    }

    #[test]
    fn refuses_partial_packets() {
        let mut buf = [0; SLOT_HEADER_LEN + 7];
        let mut end = SLOT_HEADER_LEN;
        for packet in [&b"abc"[..], b""] {
            end += write_packet(&mut buf[end..], packet).expect("it fits");
        }
        assert_eq!(write_packet(&mut buf[end..], b""), None);
        let (_, mut packets) = Slot::parse(&buf).expect("whole");
        assert_eq!(
            [packets.next(), packets.next(), packets.next()],
            [Some(&b"abc"[..]), Some(&b""[..]), None]
        );
        assert!((0..buf.len()).filter(|end| Slot::parse(&buf[..*end]).is_ok()).eq([12, 17]));
    }
}
