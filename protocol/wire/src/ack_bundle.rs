//! Acknowledgements of several processes, in one frame between the switches of two hosts.
//!
//! A switch takes acknowledgements apart from their frames and seals them again as entries of a
//! bundle; the check of the bundle covers all of them. Another switch copies the bundle to the
//! processes that its entries are for, as it does with messages for several receivers, and each
//! reads its copy as the frame of its entry: [`crate::Frame::parse_for`].

use onepipe_base::{Incarnation, ProcessId, ProcessInstance};
use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ack::ACK_LEN;
use crate::{AckView, DecodeError, Frame, Opcode};

/// Length of the header before the entries.
const HEADER_LEN: usize = 4;
/// Maximum number of acknowledgements in a bundle: a bundle fits the shortest frames that links
/// carry, and bounds what one frame costs a switch.
pub const BUNDLED_ACKS_MAX: usize = 16;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Layout {
    src: U32,
    incarnation: U32,
    dst: U32,
    ack: [u8; ACK_LEN],
}

const _: () = assert!(size_of::<Layout>() == 48);

/// An acknowledgement of the reliable service with both its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BundledAck {
    /// The process that acknowledges.
    pub from: ProcessInstance,
    /// The process whose packets are acknowledged.
    pub to: ProcessId,
    /// The payload of the frame of this acknowledgement alone: see [`crate::Ack`].
    pub ack: [u8; ACK_LEN],
}

impl BundledAck {
    /// Takes the acknowledgement out of its frame. `None` if the frame is damaged, is of another
    /// kind, or lists single packets, for which a bundle has no space.
    #[must_use]
    pub fn of_frame(frame: &[u8]) -> Option<Self> {
        let Frame { header, opcode, payload } = Frame::parse(frame).ok()?;
        let ack = payload.try_into().ok().filter(|_| opcode == Opcode::ReliableAck)?;
        AckView::parse(payload).ok()?;
        let from = ProcessInstance { process: header.src(), incarnation: header.incarnation() };
        Some(Self { from, to: header.dst(), ack })
    }
}

/// The payload of a frame with opcode [`Opcode::ReliableAckBundle`].
#[derive(Clone, Copy, Debug)]
pub struct AckBundle<'a> {
    layouts: &'a [Layout],
}

impl<'a> AckBundle<'a> {
    /// Returns the length of a bundle of `count` acknowledgements.
    #[must_use]
    pub const fn len_of(count: usize) -> usize {
        HEADER_LEN + count * size_of::<Layout>()
    }

    /// Writes a bundle to the front of `buf`. Returns its length, or `None` if it does not fit.
    pub fn write(buf: &mut [u8], acks: impl ExactSizeIterator<Item = BundledAck>) -> Option<usize> {
        let count = acks.len();
        let buf = buf.get_mut(..Self::len_of(count))?;
        let (front, entries) = buf.split_at_mut(HEADER_LEN);
        front.copy_from_slice(&[u8::try_from(count).ok()?, 0, 0, 0]);
        for (entry, ack) in entries.chunks_exact_mut(size_of::<Layout>()).zip(acks) {
            let layout = Layout {
                src: U32::new(ack.from.process.0),
                incarnation: U32::new(ack.from.incarnation.0),
                dst: U32::new(ack.to.0),
                ack: ack.ack,
            };
            entry.copy_from_slice(layout.as_bytes());
        }
        Some(buf.len())
    }

    /// Parses a bundle.
    ///
    /// # Errors
    /// If it is empty, too long or truncated.
    #[inline]
    pub fn parse(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let got = payload.len();
        let truncated = |need| DecodeError::Truncated { part: "acknowledgements", need, got };
        let (front, rest) = payload.split_at_checked(HEADER_LEN).ok_or(truncated(HEADER_LEN))?;
        let count = usize::from(front[0]);
        if count == 0 || count > BUNDLED_ACKS_MAX {
            let field = "number of acknowledgements";
            return Err(DecodeError::Field { field, value: count as u64 });
        }
        let (layouts, _) = <[Layout]>::ref_from_prefix_with_elems(rest, count)
            .map_err(|_| truncated(Self::len_of(count)))?;
        Ok(Self { layouts })
    }

    /// Returns the number of acknowledgements.
    #[must_use]
    pub fn count(&self) -> usize {
        self.layouts.len()
    }

    /// Returns an acknowledgement by its position.
    #[inline]
    #[must_use]
    pub fn get(&self, position: usize) -> Option<BundledAck> {
        let layout = self.layouts.get(position)?;
        let process = ProcessId(layout.src.get());
        let incarnation = Incarnation(layout.incarnation.get());
        let from = ProcessInstance { process, incarnation };
        Some(BundledAck { from, to: ProcessId(layout.dst.get()), ack: layout.ack })
    }

    /// Returns the range in the payload of the acknowledgement at `position`.
    pub(crate) const fn range_of(position: usize) -> core::ops::Range<usize> {
        let end = Self::len_of(position + 1);
        end - ACK_LEN..end
    }
}
