//! Encoding of segments in the payload of a frame.

use onepipe_base::{Incarnation, ProcessId, Psn};
use onepipe_wire::{Flags, Frame, Header, Opcode, SHORT_HEADER_LEN, seal};

/// The first bytes of the payload, unlike those of other users of the opcode.
const MAGIC: [u8; 4] = *b"tcp\x01";
/// Maximum length of a segment header, in bytes.
pub(crate) const SEGMENT_LEN_MAX: usize = 37;
/// Frame length of a segment beyond its payload, in bytes: TCP with timestamps needs 90, of which
/// the link overhead of Ethernet, IPv4 and UDP counts 66.
const FRAME_OVERHEAD_BYTES: usize = 24;

/// A segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    Data(Data),
    Ack(Ack),
}

/// A part of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Data {
    /// The flow of the sender.
    pub flow: u32,
    /// Packet number, which counts retransmissions.
    pub packet: u64,
    /// Index of the part; all parts but the last one have equal lengths.
    pub part: u64,
    /// Length of the part, in bytes.
    pub bytes: u32,
    /// Whether to acknowledge it at once.
    pub is_last: bool,
}

/// An acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ack {
    /// The flow of the addressee.
    pub flow: u32,
    /// The highest packet received.
    pub highest: u64,
    /// Bitmap of the 64 packets up to that; bit 0 stands for the highest.
    pub acked: u64,
    /// The first missing part of the stream.
    pub next: u64,
    /// Number of marked packets received so far.
    pub marked: u32,
}

/// Returns the frame length of a segment with `bytes` bytes of payload.
pub(crate) const fn frame_len(bytes: u32) -> usize {
    let bytes = bytes as usize + FRAME_OVERHEAD_BYTES;
    let least = SHORT_HEADER_LEN + SEGMENT_LEN_MAX;
    if bytes > least { bytes } else { least }
}

/// Writes the frame of a segment into `slot`. Returns its length.
pub(crate) fn write(
    (from, to): (ProcessId, ProcessId),
    segment: Segment,
    slot: &mut [u8],
) -> usize {
    let space = &mut slot[SHORT_HEADER_LEN..];
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        space[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    put(&MAGIC);
    let (flow, carried) = match segment {
        Segment::Data(data) => {
            put(&[if data.is_last { 2 } else { 1 }]);
            put(&data.flow.to_be_bytes());
            put(&data.packet.to_be_bytes());
            put(&data.part.to_be_bytes());
            put(&data.bytes.to_be_bytes());
            (data.flow, data.bytes)
        }
        Segment::Ack(ack) => {
            put(&[0]);
            put(&ack.flow.to_be_bytes());
            put(&ack.highest.to_be_bytes());
            put(&ack.acked.to_be_bytes());
            put(&ack.next.to_be_bytes());
            put(&ack.marked.to_be_bytes());
            (ack.flow, 0)
        }
    };
    let header = Header::new(Opcode::Foreign, from, to, Incarnation(1)).with_psn(Psn(flow));
    let head = seal(slot, header, at);
    // The payload is not carried: the frame is only as long.
    let bytes = frame_len(carried);
    slot[head..bytes].fill(0);
    bytes
}

/// Returns the segment in a frame, and whether it was marked.
pub(crate) fn read(frame: &Frame<'_>) -> Option<(Segment, bool)> {
    let mut rest = frame.payload.strip_prefix(&MAGIC)?;
    let (kind, flow) = (take::<1>(&mut rest)?, take::<4>(&mut rest)?);
    let flow = u32::from_be_bytes(flow);
    let mut word = || take::<8>(&mut rest).map(u64::from_be_bytes);
    let segment = match kind[0] {
        0 => {
            let (highest, acked, next) = (word()?, word()?, word()?);
            let marked = u32::from_be_bytes(take::<4>(&mut rest)?);
            Segment::Ack(Ack { flow, highest, acked, next, marked })
        }
        kind @ (1 | 2) => {
            let (packet, part) = (word()?, word()?);
            let bytes = u32::from_be_bytes(take::<4>(&mut rest)?);
            Segment::Data(Data { flow, packet, part, bytes, is_last: kind == 2 })
        }
        _ => return None,
    };
    Some((segment, frame.header.has(Flags::CONGESTION)))
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*taken)
}
