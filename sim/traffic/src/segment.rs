//! What a segment looks like in the payload of a frame.

use onepipe_base::{Incarnation, ProcessId, Promises, Psn, Timestamp};
use onepipe_wire::{Flags, Frame, HEADER_LEN, Header, Opcode, seal};

/// The first bytes of the payload: other users of the opcode do not begin with them.
const MAGIC: [u8; 4] = *b"tcp\x01";
/// The longest head of a segment, in bytes.
pub(crate) const SEGMENT_LEN_MAX: usize = 37;
/// By so much the frame of a segment is longer than what it carries: a link adds 66 bytes for
/// Ethernet, IPv4 and UDP, and TCP with timestamps needs 90.
const FRAME_OVERHEAD_BYTES: usize = 24;

/// A segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    Data(Data),
    Ack(Ack),
}

/// A part of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Data {
    /// Of which of the sender's flows.
    pub flow: u32,
    /// Counts what is sent, repetitions included.
    pub packet: u64,
    /// Which part of the stream: all but the last one are equally long.
    pub part: u64,
    /// How many bytes it carries.
    pub bytes: u32,
    /// Whether it should be acknowledged at once.
    pub is_last: bool,
}

/// What has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ack {
    /// Of which of the addressee's flows.
    pub flow: u32,
    /// The highest packet that has come.
    pub highest: u64,
    /// Which of the 64 up to that have come: bit 0 stands for the highest.
    pub acked: u64,
    /// The first part of the stream that has not come.
    pub next: u64,
    /// How many packets came marked, ever.
    pub marked: u32,
}

/// Bytes of the frame of a segment that carries `bytes` of the stream.
pub(crate) const fn frame_len(bytes: u32) -> usize {
    let bytes = bytes as usize + FRAME_OVERHEAD_BYTES;
    let least = HEADER_LEN + SEGMENT_LEN_MAX;
    if bytes > least { bytes } else { least }
}

/// Writes the frame of a segment to `to` into `slot`, and answers its length.
pub(crate) fn write(
    now: Timestamp,
    (from, to): (ProcessId, ProcessId),
    segment: Segment,
    slot: &mut [u8],
) -> usize {
    let space = &mut slot[HEADER_LEN..];
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
    let header = Header::new(Opcode::Foreign, from, to, Incarnation(1));
    let header = header.stamped(now, Promises::both(now), Psn(flow));
    let head = seal(slot, header, at);
    // The stream's bytes are not there: the frame is as long as if they were.
    let bytes = frame_len(carried);
    slot[head..bytes].fill(0);
    bytes
}

/// The segment in a frame, and whether it was marked on its way.
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
