//! Data frames for several receivers: a list of them, acknowledgements for some of them, then
//! messages that all of them receive.
//!
//! A sender seals the frame once, for nobody in particular. Switches divide its receivers among
//! their outputs: a copy for several receivers states which part of the list they are
//! ([`Header::write_run`]), and the copy for one receiver has its address and PSN
//! ([`Header::write_copy`]). Both stand in fields of the header that no end-to-end check covers in
//! these frames, because the list has them. A receiver reads its copy as an ordinary data frame:
//! [`Frame::parse_for`].

use core::ops::Range;

use onepipe_base::{ProcessId, Psn};
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{
    DecodeError, Flags, Frame, HEADER_LEN, Header, MESSAGE_HEADER_LEN, Messages, Opcode,
    PIGGYBACK_LEN, PiggybackedAck, header_len, integrity,
};

/// Length of the header before the list of receivers.
pub const SHARED_DATA_HEADER_LEN: usize = 4;
/// Length of a receiver in the list.
pub const SHARED_DATA_RECEIVER_LEN: usize = 12;
/// Maximum number of receivers of a frame: bounds what one frame costs a switch.
pub const SHARED_DATA_RECEIVERS_MAX: usize = 64;
/// The destination of a frame for several receivers: no address.
const NOT_REPLICATED: u32 = u32::MAX;
/// Bits of the field `psn` of such a frame for each end of a part of the list.
const POSITION_BITS: u32 = 8;
const _: () = assert!(SHARED_DATA_RECEIVERS_MAX < 1 << POSITION_BITS, "a position fits");

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ReceiverLayout {
    process: U32,
    psn: U32,
    index: U16,
    flags: u8,
    reserved: u8,
}

const _: () = assert!(size_of::<ReceiverLayout>() == SHARED_DATA_RECEIVER_LEN);

impl ReceiverLayout {
    #[inline]
    fn has_ack(&self) -> bool {
        self.flags & Flags::PIGGYBACK != 0
    }
}

/// One receiver of a shared frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SharedReceiver {
    /// The process.
    pub process: ProcessId,
    /// Sequence number of the packet on the connection to this process.
    pub psn: Psn,
    /// Index of the messages for this process in their scatterings.
    pub index: u16,
    /// The receiver should acknowledge at once.
    pub is_ack_wanted: bool,
    /// A [`PiggybackedAck`] for the receiver is among those behind the list.
    pub has_ack: bool,
}

impl SharedReceiver {
    /// Returns the flags of the header that hold for this receiver only.
    fn flags(&self) -> u8 {
        let ack_now = if self.is_ack_wanted { Flags::ACK_NOW } else { 0 };
        ack_now | if self.has_ack { Flags::PIGGYBACK } else { 0 }
    }
}

/// The list of receivers of a shared frame, and the acknowledgements behind it.
#[derive(Clone, Copy, Debug)]
pub struct SharedReceivers<'a> {
    layouts: &'a [ReceiverLayout],
    acks: &'a [[u8; PIGGYBACK_LEN]],
}

impl<'a> SharedReceivers<'a> {
    /// Returns the length of a list of `count` receivers with its header.
    #[must_use]
    pub const fn list_len(count: usize) -> usize {
        SHARED_DATA_HEADER_LEN + count * SHARED_DATA_RECEIVER_LEN
    }

    /// Writes a list to the front of `buf`. Returns its length, or `None` if it does not fit.
    #[inline]
    pub fn write(
        buf: &mut [u8],
        receivers: impl ExactSizeIterator<Item = SharedReceiver>,
    ) -> Option<usize> {
        let count = receivers.len();
        let buf = buf.get_mut(..Self::list_len(count))?;
        let (front, entries) = buf.split_at_mut(SHARED_DATA_HEADER_LEN);
        front.copy_from_slice(&[u8::try_from(count).ok()?, 0, 0, 0]);
        for (entry, receiver) in entries.chunks_exact_mut(SHARED_DATA_RECEIVER_LEN).zip(receivers) {
            let layout = ReceiverLayout {
                process: U32::new(receiver.process.0),
                psn: U32::new(receiver.psn.0),
                index: U16::new(receiver.index),
                flags: receiver.flags(),
                reserved: 0,
            };
            entry.copy_from_slice(layout.as_bytes());
        }
        Some(buf.len())
    }

    /// Parses the payload of a frame with opcode [`Opcode::SharedData`]: its receivers with their
    /// acknowledgements, and its messages.
    ///
    /// # Errors
    /// If the list is empty, too long or truncated, or an acknowledgement is missing.
    #[inline]
    pub fn parse(payload: &'a [u8]) -> Result<(Self, &'a [u8]), DecodeError> {
        let (need, got) = (SHARED_DATA_HEADER_LEN, payload.len());
        let truncated = |need| DecodeError::Truncated { part: "list of receivers", need, got };
        let (front, rest) =
            payload.split_at_checked(SHARED_DATA_HEADER_LEN).ok_or(truncated(need))?;
        let count = usize::from(front[0]);
        if count == 0 || count > SHARED_DATA_RECEIVERS_MAX {
            return Err(DecodeError::Field { field: "number of receivers", value: count as u64 });
        }
        let (layouts, rest) = <[ReceiverLayout]>::ref_from_prefix_with_elems(rest, count)
            .map_err(|_| truncated(Self::list_len(count)))?;
        let acks = layouts.iter().filter(|layout| layout.has_ack()).count();
        let (acks, messages) = <[[u8; PIGGYBACK_LEN]]>::ref_from_prefix_with_elems(rest, acks)
            .map_err(|_| truncated(Self::list_len(count) + acks * PIGGYBACK_LEN))?;
        Ok((Self { layouts, acks }, messages))
    }

    /// Returns the number of receivers.
    #[must_use]
    pub fn count(&self) -> usize {
        self.layouts.len()
    }

    /// Returns a receiver by its position in the list.
    #[inline]
    #[must_use]
    pub fn get(&self, position: usize) -> Option<SharedReceiver> {
        self.layouts.get(position).map(|layout| SharedReceiver {
            process: ProcessId(layout.process.get()),
            psn: Psn(layout.psn.get()),
            index: layout.index.get(),
            is_ack_wanted: layout.flags & Flags::ACK_NOW != 0,
            has_ack: layout.has_ack(),
        })
    }

    /// Returns the acknowledgement for a receiver by its position in the list.
    #[must_use]
    pub fn ack(&self, position: usize) -> Option<PiggybackedAck> {
        let (ack, _) = PiggybackedAck::split(&self.ack_bytes(position)?).ok()?;
        Some(ack)
    }

    fn ack_bytes(&self, position: usize) -> Option<[u8; PIGGYBACK_LEN]> {
        let (before, from) = self.layouts.split_at_checked(position)?;
        from.first().filter(|layout| layout.has_ack())?;
        self.acks.get(before.iter().filter(|layout| layout.has_ack()).count()).copied()
    }

    /// Returns the receivers.
    pub fn iter(&self) -> impl Iterator<Item = SharedReceiver> + use<'a> {
        let list = *self;
        (0..list.count()).filter_map(move |position| list.get(position))
    }
}

impl Header {
    /// Returns the header of a shared frame, addressed to all of the list.
    #[must_use]
    pub fn unaddressed(mut self) -> Self {
        (self.dst, self.psn) = (U32::new(NOT_REPLICATED), U32::ZERO);
        self
    }

    /// Whether a shared frame is for a part of the list, and not for one receiver.
    #[inline]
    #[must_use]
    pub fn is_unaddressed(&self) -> bool {
        self.dst.get() == NOT_REPLICATED
    }

    /// Returns the part of a list of `count` receivers that an unaddressed frame is for. `None` if
    /// the frame states none of the list.
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
    /// Overwrites the header of a shared frame with this one, addressed to `receiver`, and renews
    /// the hop tag. Leaves bytes shorter than a header alone.
    #[inline]
    pub fn write_copy(&self, bytes: &mut [u8], receiver: SharedReceiver) {
        self.write_readdressed(bytes, receiver.process.0, receiver.psn.0);
    }

    //= spec/ordering.md#R52
    /// As [`Header::write_copy`], for the receivers at these positions of the list.
    #[inline]
    pub fn write_run(&self, bytes: &mut [u8], run: Range<usize>) {
        debug_assert!(run.start < run.end && run.end <= SHARED_DATA_RECEIVERS_MAX, "{run:?}");
        let psn = (run.start as u32) << POSITION_BITS | run.end as u32;
        self.write_readdressed(bytes, NOT_REPLICATED, psn);
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
    /// frame into the data frame that it stands for, in place.
    ///
    /// # Errors
    /// As [`Frame::parse`], and for a copy that is not for `process` or whose list is malformed.
    #[inline]
    pub fn parse_for(bytes: &'a mut [u8], process: ProcessId) -> Result<Self, DecodeError> {
        let Frame { mut header, opcode, payload } = Frame::parse(bytes)?;
        let begin = header_len(header.opcode);
        let payload = begin..begin + payload.len();
        let start = match opcode.is_shared() {
            true => open_copy(&mut header, &mut bytes[payload.clone()], process)?,
            false => 0,
        };
        let payload = &bytes[begin + start..payload.end];
        Ok(Self { header, opcode: header.opcode()?, payload })
    }
}

impl<'a> Messages<'a> {
    /// Iterates over the messages in the payload of a frame with this header, which may be shared.
    /// `None` if the frame carries none, or its payload is too short for what precedes them.
    pub fn of_frame(header: &Header, payload: &'a [u8]) -> Option<Self> {
        let opcode = header.opcode().ok()?;
        match opcode.in_best_effort() {
            Opcode::SharedData => {
                let (_, messages) = SharedReceivers::parse(payload).ok()?;
                Some(Self::new(messages))
            }
            Opcode::Data => {
                let messages = match header.has(Flags::PIGGYBACK) {
                    true => PiggybackedAck::split(payload).ok()?.1,
                    false => payload,
                };
                Some(match header.has(Flags::SINGLE) {
                    true => Self::single(messages),
                    false => Self::new(messages),
                })
            }
            _ => None,
        }
    }
}

/// Rewrites header and payload of a verified copy of a shared frame as those of the data frame of
/// `process`. Returns where its payload begins: the messages, and in front of them the
/// acknowledgement for this process, if there is one.
#[cold]
fn open_copy(
    header: &mut Header,
    payload: &mut [u8],
    process: ProcessId,
) -> Result<usize, DecodeError> {
    let (list, messages) = SharedReceivers::parse(payload)?;
    let start = payload.len() - messages.len();
    let is_own = |own: &SharedReceiver| own.process == process && own.psn == header.psn();
    let unknown = DecodeError::Field { field: "receiver", value: header.dst().0.into() };
    let position = list.iter().position(|own| is_own(&own)).ok_or(unknown)?;
    let own = list.get(position).filter(|own| own.process == header.dst()).ok_or(unknown)?;
    let ack = list.ack_bytes(position);
    header.opcode = match header.opcode()? {
        Opcode::ReliableSharedData => Opcode::ReliableData as u8,
        _ => Opcode::Data as u8,
    };
    header.flags &= !(Flags::PIGGYBACK | Flags::SINGLE);
    header.flags |= own.flags();
    // A message that is cut off is found when the messages are read.
    let mut rest = &mut payload[start..];
    while let Some((front, behind)) = rest.split_first_chunk_mut::<MESSAGE_HEADER_LEN>() {
        front[2..4].copy_from_slice(&own.index.to_be_bytes());
        let len = usize::from(u16::from_be_bytes([front[0], front[1]]));
        let Some((_, next)) = behind.split_at_mut_checked(len) else { break };
        rest = next;
    }
    let Some(ack) = ack else { return Ok(start) };
    // The list is not needed any more, and longer than an acknowledgement.
    let start = start - PIGGYBACK_LEN;
    payload[start..][..PIGGYBACK_LEN].copy_from_slice(&ack);
    Ok(start)
}
