//! What members say to each other, as it stands in a frame.

use bytes::Bytes;
use onepipe_base::ProcessId;
use onepipe_wire::HEADER_LEN;

use crate::connection::ACK_LEN;

/// Bytes in front of an entry's payload: kind, reserved, length, origin, place, number.
pub(crate) const ENTRY_HEADER_LEN: usize = 20;
/// What stands in the number of a message to the sequencer that is for everybody; else it is whom
/// the message is for.
pub(crate) const ALL: u64 = u64::MAX;

/// How many things a frame of a rival says: what its processor has to do with it.
pub fn entries(frame: &[u8]) -> u64 {
    let Some(rest) = frame.get(HEADER_LEN + ACK_LEN..) else { return 0 };
    let (mut at, mut count) = (0, 0);
    while let Some([l0, l1]) = rest.get(at + 2..at + 4) {
        at += ENTRY_HEADER_LEN + usize::from(u16::from_be_bytes([*l0, *l1]));
        count += 1;
    }
    count
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// A message that somebody broadcasts.
    Message,
    /// The right to give numbers, from the entry's on, or a part of it: `place` is the first member
    /// that it speaks of, its payload how many messages each of them has been sent.
    Token,
    /// The sender's clock.
    Clock,
    /// The sender has taken the number as its group's timestamp of a message.
    Ack,
    /// The sender's group delivers a message.
    Delivered,
}

/// One thing said.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    pub kind: Kind,
    /// Whose message it is.
    pub origin: ProcessId,
    /// Which of the messages to its receiver, or of its origin, it is, where that must be known.
    pub sequence: u32,
    /// Its place in the order: a sequence number, or a logical time. Of a message to groups that
    /// has none yet, which groups, as bits.
    pub number: u64,
    pub payload: Bytes,
}

impl Entry {
    /// A message that has no place yet.
    pub(crate) fn message(origin: ProcessId, number: u64, payload: Bytes) -> Self {
        Self { kind: Kind::Message, origin, sequence: 0, number, payload }
    }

    pub(crate) fn bytes(&self) -> usize {
        ENTRY_HEADER_LEN + self.payload.len()
    }

    /// Writes it to the front of `room`, if it fits. Answers how long it is.
    pub(crate) fn write(&self, buffer: &mut [u8]) -> Option<usize> {
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

    /// Takes one from the front of `bytes`, which is `None` if there is none that makes sense.
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
