//! Entries: the messages between members, and their encoding.

use bytes::Bytes;
use onepipe_base::ProcessId;
use onepipe_wire::SHORT_HEADER_LEN;

/// Length of the cumulative acknowledgement in front of the entries of a frame, in bytes.
pub(crate) const ACK_LEN: usize = 4;
/// Length of an entry's header: kind, reserved, length, origin, sequence, number.
pub(crate) const ENTRY_HEADER_LEN: usize = 20;
const _: () = assert!(ENTRY_HEADER_LEN == 1 + 1 + 2 + 4 + 4 + 8, "the fields follow each other");
/// Destination of a message to the sequencer, in the field `number`: all members. Other values are
/// a member's process id.
pub(crate) const ALL: u64 = u64::MAX;

/// Returns the number of entries in a frame, which determines its processing cost.
pub fn entries(frame: &[u8]) -> u64 {
    let Some(rest) = frame.get(SHORT_HEADER_LEN + ACK_LEN..) else { return 0 };
    let (mut at, mut count) = (0, 0);
    while let Some([l0, l1]) = rest.get(at + 2..at + 4) {
        at += ENTRY_HEADER_LEN + usize::from(u16::from_be_bytes([*l0, *l1]));
        count += 1;
    }
    count
}

/// Kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Message of a member.
    Message,
    /// Token, or a part of it: the next sequence number, and the number of messages that were sent
    /// to each of several members. The field `sequence` is the first of these members.
    Token,
    /// Clock of the sender.
    Clock,
    /// Acceptance of a message with `number` as the timestamp of the sender's group.
    Ack,
    /// The sender's group has delivered a message.
    Delivered,
}

/// Entry of a frame.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    pub kind: Kind,
    /// Sender of the message that the entry is about.
    pub origin: ProcessId,
    /// Number of the message among those to its receiver, or of its origin, where needed.
    pub sequence: u32,
    /// Position in the order: a sequence number or a logical time. Before that is known, the
    /// destination groups of the message as bits.
    pub number: u64,
    pub payload: Bytes,
}

impl Entry {
    /// Creates a message entry.
    pub(crate) fn message(origin: ProcessId, number: u64, payload: Bytes) -> Self {
        Self { kind: Kind::Message, origin, sequence: 0, number, payload }
    }

    pub(crate) fn bytes(&self) -> usize {
        ENTRY_HEADER_LEN + self.payload.len()
    }

    /// Writes the entry to `buffer` if it fits. Returns its length.
    pub(crate) fn write(&self, buffer: &mut [u8]) -> Option<usize> {
        debug_assert!(self.payload.len() <= usize::from(u16::MAX), "the length fits its field");
        let bytes = self.bytes();
        let buffer = buffer.get_mut(..bytes)?;
        let (header, payload) = buffer.split_at_mut(ENTRY_HEADER_LEN);
        header[0] = self.kind as u8;
        header[1] = 0;
        header[2..4].copy_from_slice(&(self.payload.len() as u16).to_be_bytes());
        header[4..8].copy_from_slice(&self.origin.0.to_be_bytes());
        header[8..12].copy_from_slice(&self.sequence.to_be_bytes());
        header[12..20].copy_from_slice(&self.number.to_be_bytes());
        payload.copy_from_slice(&self.payload);
        Some(bytes)
    }

    /// Reads and removes the first entry of `bytes`. Returns `None` if it is invalid.
    pub(crate) fn read(bytes: &mut Bytes) -> Option<Self> {
        let header: [u8; ENTRY_HEADER_LEN] = bytes.get(..ENTRY_HEADER_LEN)?.try_into().ok()?;
        let [kind, _, l0, l1, o0, o1, o2, o3, p0, p1, p2, p3, number @ ..] = header;
        let kind = match kind {
            0 => Kind::Message,
            1 => Kind::Token,
            2 => Kind::Clock,
            3 => Kind::Ack,
            4 => Kind::Delivered,
            _ => return None,
        };
        let length = usize::from(u16::from_be_bytes([l0, l1]));
        if bytes.len() < ENTRY_HEADER_LEN + length {
            return None;
        }
        let payload = bytes.split_to(ENTRY_HEADER_LEN + length).slice(ENTRY_HEADER_LEN..);
        let origin = ProcessId(u32::from_be_bytes([o0, o1, o2, o3]));
        let sequence = u32::from_be_bytes([p0, p1, p2, p3]);
        Some(Self { kind, origin, sequence, number: u64::from_be_bytes(number), payload })
    }
}
