//! What the reliable service keeps of packets on the way, to send them again.

use onepipe_base::{Mono, Psn};

use crate::arena::PayloadRef;
use crate::seq_deque::SeqDeque;

/// A message that stays in the send buffer until it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct UnackedMessage {
    /// Its scattering's number in the order of departure.
    pub scattering: u64,
    pub payload_ref: PayloadRef,
    pub len: u32,
    /// Packets with parts of it that are not acknowledged, and one more until all have left. No
    /// flag beside it: these are copied for each message, and a copy of what was written field by
    /// field, or of bytes that are in none, waits for the store buffer.
    pub missing: u32,
}

/// What a packet was, as far as its messages do not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct UnackedPacket {
    /// Where its piece begins in its message; `None`: whole messages.
    pub offset: Option<u32>,
    /// Bytes of its piece.
    pub piece: u32,
    pub was_retransmitted: bool,
}

/// Packets to send again: those before `until` that left at or before `overdue`, and those before
/// `gap` that were sent only once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RetransmitRange {
    pub next: Psn,
    pub until: Psn,
    pub overdue: Mono,
    pub gap: Psn,
    /// How many more before the next acknowledgement.
    pub budget: u32,
}

/// Numbered as the flight numbers its messages and packets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RetransmitBuffer {
    pub messages: SeqDeque<UnackedMessage>,
    pub packets: SeqDeque<UnackedPacket>,
    pub range: Option<RetransmitRange>,
}

impl RetransmitBuffer {
    pub fn new() -> Self {
        Self { messages: SeqDeque::new(), packets: SeqDeque::new(), range: None }
    }
}
