//! Data frames for several receivers: a list of them, acknowledgements for some of them, then
//! messages that all of them receive.
//!
//! Switches replicate them: see [`Receivers`][crate::Receivers].

use core::ops::Range;

use onepipe_base::{ProcessId, Psn};
use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{
    DecodeError, Flags, Header, MESSAGE_HEADER_LEN, Messages, Opcode, PIGGYBACK_LEN, PiggybackedAck,
};

/// Length of the header before the list of receivers.
pub const SHARED_DATA_HEADER_LEN: usize = 4;
/// Length of a receiver in the list.
pub const SHARED_DATA_RECEIVER_LEN: usize = 12;
/// Maximum number of receivers of a frame: bounds what one frame costs a switch.
pub const SHARED_DATA_RECEIVERS_MAX: usize = 64;

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
/// the receiver at `position` of the list. Returns the range of its payload: the messages, and in
/// front of them the acknowledgement for this process, if there is one. `None` if there is no such
/// receiver.
pub(crate) fn open_copy(
    header: &mut Header,
    payload: &mut [u8],
    position: usize,
) -> Option<Range<usize>> {
    let (list, messages) = SharedReceivers::parse(payload).ok()?;
    let (start, end) = (payload.len() - messages.len(), payload.len());
    let (own, ack) = (list.get(position)?, list.ack_bytes(position));
    header.opcode = match header.opcode().ok()? {
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
    let Some(ack) = ack else { return Some(start..end) };
    // The list is not needed any more, and longer than an acknowledgement.
    let start = start - PIGGYBACK_LEN;
    payload[start..][..PIGGYBACK_LEN].copy_from_slice(&ack);
    Some(start..end)
}
