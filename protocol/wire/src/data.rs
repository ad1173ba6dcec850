//! Payloads that carry messages: coalesced whole messages, and fragments.

use onepipe_base::copy_payload;
use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::DecodeError;

/// Length of the header before each coalesced message.
pub const MESSAGE_HEADER_LEN: usize = 8;
/// Length of the header before the bytes of a fragment.
pub const FRAGMENT_HEADER_LEN: usize = 12;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct MessageHeader {
    length: U16,
    index: U16,
    delta: U32,
}

const _: () = assert!(size_of::<MessageHeader>() == MESSAGE_HEADER_LEN);
const _: () = assert!(size_of::<FragmentLayout>() == FRAGMENT_HEADER_LEN);

/// One whole message of a data frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Nanoseconds from the frame's message timestamp to the message's own.
    pub delta_ns: u32,
    /// Index in its scattering.
    pub index: u16,
    /// What the application sent.
    pub payload: &'a [u8],
}

/// The messages of a data frame's payload, in ascending `(timestamp, index)`.
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    rest: &'a [u8],
    /// The rest is one message without a header.
    is_single: bool,
}

impl<'a> Messages<'a> {
    /// Iterates over messages with headers: the payload of a frame with opcode
    /// [`crate::Opcode::Data`] and neither
    /// [`crate::Flags::PIGGYBACK`] nor [`crate::Flags::SINGLE`].
    #[inline]
    pub fn new(payload: &'a [u8]) -> Self {
        Self { rest: payload, is_single: false }
    }

    /// Returns a message without a header: the payload of a frame with [`crate::Flags::SINGLE`].
    #[inline]
    pub fn single(payload: &'a [u8]) -> Self {
        Self { rest: payload, is_single: true }
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, DecodeError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.is_single {
            let payload = core::mem::take(&mut self.rest);
            self.is_single = false;
            return Some(Ok(Message { delta_ns: 0, index: 0, payload }));
        }
        if self.rest.is_empty() {
            return None;
        }
        let Ok((header, rest)) = MessageHeader::ref_from_prefix(self.rest) else {
            let got = core::mem::take(&mut self.rest).len();
            let need = MESSAGE_HEADER_LEN;
            return Some(Err(DecodeError::Truncated { part: "message header", need, got }));
        };
        let need = usize::from(header.length.get());
        let Some((payload, rest)) = rest.split_at_checked(need) else {
            self.rest = &[];
            return Some(Err(DecodeError::Truncated { part: "message", need, got: rest.len() }));
        };
        self.rest = rest;
        Some(Ok(Message { delta_ns: header.delta.get(), index: header.index.get(), payload }))
    }
}

/// Writes a message with its header to the front of `buf`. Returns the length, or `None` if it does
/// not fit.
#[inline]
pub fn write_message(buf: &mut [u8], message: Message<'_>) -> Option<usize> {
    let length = u16::try_from(message.payload.len()).ok()?;
    let bytes = MESSAGE_HEADER_LEN + message.payload.len();
    let buf = buf.get_mut(..bytes)?;
    let (front, body) = buf.split_first_chunk_mut()?;
    // One store: fields written one by one would have to leave the store buffer before they could
    // be copied as one.
    let fields = u64::from(length) << 48 | u64::from(message.index) << 32;
    *front = (fields | u64::from(message.delta_ns)).to_be_bytes();
    copy_payload(body, message.payload);
    Some(bytes)
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FragmentLayout {
    index: U16,
    reserved: U16,
    message_len: U32,
    offset: U32,
}

/// The header of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentHeader {
    /// Index of the message in its scattering.
    pub index: u16,
    /// Length of the whole message.
    pub message_len: u32,
    /// Offset of the fragment in the message, in bytes.
    pub offset: u32,
}

/// The payload of a fragment frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// Its header.
    pub header: FragmentHeader,
    /// Its part of the message.
    pub piece: &'a [u8],
}

impl<'a> Fragment<'a> {
    /// Parses the payload of a frame with opcode [`crate::Opcode::Fragment`].
    ///
    /// # Errors
    /// If the payload is shorter than the fragment header, or the fragment is empty or exceeds the
    /// message.
    pub fn parse(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let Ok((layout, piece)) = FragmentLayout::ref_from_prefix(payload) else {
            let (need, got) = (FRAGMENT_HEADER_LEN, payload.len());
            return Err(DecodeError::Truncated { part: "fragment header", need, got });
        };
        let header = FragmentHeader {
            index: layout.index.get(),
            message_len: layout.message_len.get(),
            offset: layout.offset.get(),
        };
        let end = u64::from(header.offset) + piece.len() as u64;
        if piece.is_empty() || end > u64::from(header.message_len) {
            return Err(DecodeError::Field { field: "end of fragment", value: end });
        }
        Ok(Self { header, piece })
    }
}

/// Writes a fragment header to the front of `buf`.
///
/// # Panics
/// If `buf` is shorter than [`FRAGMENT_HEADER_LEN`].
pub fn write_fragment_header(buf: &mut [u8], header: FragmentHeader) {
    let layout = FragmentLayout {
        index: U16::new(header.index),
        reserved: U16::ZERO,
        message_len: U32::new(header.message_len),
        offset: U32::new(header.offset),
    };
    buf[..FRAGMENT_HEADER_LEN].copy_from_slice(layout.as_bytes());
}
