//! Frames that list their receivers, which switches replicate: messages for several processes, and
//! bundles of acknowledgements.
//!
//! A sender seals such a frame once, for nobody in particular. Switches divide its receivers among
//! their outputs: a copy for several receivers states which part of the list they are
//! ([`Header::write_run`]), and the copy for one receiver has its address and sequence number
//! ([`Header::write_copy`]). Both stand in fields of the header that no end-to-end check covers in
//! these frames, because the list has them. A receiver reads its copy as the frame that it would
//! have received alone: [`Frame::parse_for`].

use core::ops::Range;

use onepipe_base::{ProcessId, Psn};
use zerocopy::byteorder::big_endian::{U32, U64};

use crate::ack_bundle::AckBundle;
use crate::{
    DecodeError, Frame, HEADER_LEN, Header, Opcode, SHARED_DATA_RECEIVERS_MAX, SharedReceivers,
    header_len, integrity, shared_data,
};

/// The destination of a frame for several receivers: no address.
const NO_ADDRESS: u32 = u32::MAX;
/// Bits of the field `psn` of such a frame for each end of a part of the list.
const POSITION_BITS: u32 = 8;
const _: () = assert!(SHARED_DATA_RECEIVERS_MAX < 1 << POSITION_BITS, "a position fits");

/// The receivers that a frame lists.
#[derive(Clone, Copy, Debug)]
pub enum Receivers<'a> {
    /// Of messages.
    Data(SharedReceivers<'a>),
    /// Of acknowledgements.
    Acks(AckBundle<'a>),
}

impl<'a> Receivers<'a> {
    /// Parses the payload of a frame that [is shared][Opcode::is_shared].
    ///
    /// # Errors
    /// If the list is empty, too long or truncated, or the frame lists no receivers.
    #[inline]
    pub fn parse(opcode: Opcode, payload: &'a [u8]) -> Result<Self, DecodeError> {
        match opcode {
            Opcode::SharedData | Opcode::ReliableSharedData => {
                SharedReceivers::parse(payload).map(|(list, _)| Self::Data(list))
            }
            Opcode::ReliableAckBundle => AckBundle::parse(payload).map(Self::Acks),
            other => Err(DecodeError::Opcode(other as u8)),
        }
    }

    /// Returns the number of receivers.
    #[must_use]
    pub fn count(&self) -> usize {
        match self {
            Self::Data(list) => list.count(),
            Self::Acks(bundle) => bundle.count(),
        }
    }

    /// Returns a receiver by its position in the list, with the sequence number of its copy: that
    /// of the packet, or the position of the acknowledgement.
    #[inline]
    #[must_use]
    pub fn get(&self, position: usize) -> Option<(ProcessId, Psn)> {
        match self {
            Self::Data(list) => list.get(position).map(|receiver| (receiver.process, receiver.psn)),
            Self::Acks(bundle) => bundle.get(position).map(|ack| (ack.to, Psn(position as u32))),
        }
    }
}

impl Header {
    /// Returns the header of a shared frame, addressed to all of the list.
    #[must_use]
    pub fn unaddressed(mut self) -> Self {
        (self.dst, self.psn) = (U32::new(NO_ADDRESS), U32::ZERO);
        self
    }

    /// Whether a shared frame is for a part of the list, and not for one receiver.
    #[inline]
    #[must_use]
    pub fn is_unaddressed(&self) -> bool {
        self.dst.get() == NO_ADDRESS
    }

    /// Returns the part of a list of `count` receivers that an unaddressed frame is for. `None` if
    /// the list has no such part.
    #[must_use]
    pub fn run(&self, count: usize) -> Option<Range<usize>> {
        let psn = self.psn.get();
        if psn == 0 {
            return Some(0..count);
        }
        let (first, end) = (psn >> POSITION_BITS, psn & ((1 << POSITION_BITS) - 1));
        (first < end && end as usize <= count).then_some(first as usize..end as usize)
    }

    //= spec/ordering.md#R52
    /// Overwrites the header of a shared frame with this one, addressed to a receiver by what
    /// [`Receivers::get`] returns, and renews the hop tag. Leaves bytes shorter than a header
    /// alone.
    #[inline]
    pub fn write_copy(&self, bytes: &mut [u8], receiver: (ProcessId, Psn)) {
        let (process, psn) = receiver;
        self.write_readdressed(bytes, process.0, psn.0);
    }

    //= spec/ordering.md#R52
    /// As [`Header::write_copy`], for the receivers at these positions of the list.
    #[inline]
    pub fn write_run(&self, bytes: &mut [u8], run: Range<usize>) {
        debug_assert!(run.start < run.end && run.end <= SHARED_DATA_RECEIVERS_MAX, "{run:?}");
        let psn = (run.start as u32) << POSITION_BITS | run.end as u32;
        self.write_readdressed(bytes, NO_ADDRESS, psn);
    }

    #[inline]
    fn write_readdressed(&self, bytes: &mut [u8], dst: u32, psn: u32) {
        let mut copy = *self;
        (copy.dst, copy.psn) = (U32::new(dst), U32::new(psn));
        copy.hop_tag = U64::new(integrity::compute_hop_tag(&copy));
        if bytes.len() >= HEADER_LEN {
            copy.put(bytes);
        }
    }

    /// Whether the frame lists its receivers: see [`Opcode::is_shared`].
    #[inline]
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.opcode & 0xef == Opcode::SharedData as u8
            || self.opcode == Opcode::ReliableAckBundle as u8
    }

    /// Whether this is a header of the same shared frame as `other`, for the same receivers.
    #[must_use]
    pub fn is_same_copy(&self, other: &Self) -> bool {
        (self.integrity, self.dst, self.psn) == (other.integrity, other.dst, other.psn)
    }
}

impl<'a> Frame<'a> {
    //= spec/ordering.md#R53
    /// As [`Frame::parse`], for the frames that `process` receives: turns its copy of a shared
    /// frame into the data frame or the acknowledgement that it stands for, in place.
    ///
    /// # Errors
    /// As [`Frame::parse`], and for a copy that is not for `process` or whose list is malformed.
    #[inline]
    pub fn parse_for(bytes: &'a mut [u8], process: ProcessId) -> Result<Self, DecodeError> {
        let Frame { mut header, opcode, payload } = Frame::parse(bytes)?;
        let begin = header_len(header.opcode);
        let payload = begin..begin + payload.len();
        let own = match opcode.is_shared() {
            true => open_copy(&mut header, opcode, &mut bytes[payload.clone()], process)?,
            false => 0..payload.len(),
        };
        let payload = &bytes[payload][own];
        Ok(Self { header, opcode: header.opcode()?, payload })
    }
}

/// Rewrites header and payload of a verified copy of a shared frame as those of the frame that
/// `process` would have received alone. Returns the range of its payload.
#[cold]
fn open_copy(
    header: &mut Header,
    opcode: Opcode,
    payload: &mut [u8],
    process: ProcessId,
) -> Result<Range<usize>, DecodeError> {
    let unknown = DecodeError::Field { field: "receiver", value: header.dst().0.into() };
    let list = Receivers::parse(opcode, payload)?;
    let own = (process, header.psn());
    let is_own = |position: &usize| list.get(*position) == Some(own);
    let position = (0..list.count()).find(is_own).filter(|_| header.dst() == process);
    let position = position.ok_or(unknown)?;
    match list {
        Receivers::Data(_) => shared_data::open_copy(header, payload, position).ok_or(unknown),
        Receivers::Acks(bundle) => {
            let from = bundle.get(position).ok_or(unknown)?.from;
            header.src = U32::new(from.process.0);
            header.incarnation = U32::new(from.incarnation.0);
            header.psn = U32::new(Psn::FIRST.0);
            header.opcode = Opcode::ReliableAck as u8;
            Ok(AckBundle::range_of(position))
        }
    }
}
