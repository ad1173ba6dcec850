//! What the reliable service stores about packets in flight for retransmission.

use onepipe_base::{Mono, Psn};

use crate::arena::PayloadRef;
use onepipe_reliability::SeqDeque;

/// A message that stays in the send buffer until it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct UnackedMessage {
    /// Number of its scattering in sending order.
    pub scattering: u64,
    pub payload_ref: PayloadRef,
    pub len: u32,
    /// Packets with parts of the message that are not acknowledged, plus one while packets remain
    /// to be sent. No flag and no padding: the record is copied for each message, and a copy of
    /// separately written fields stalls on store forwarding.
    pub missing: u32,
}

/// Value of [`UnackedMessage::missing`] of a message that was given up: no number of
/// acknowledgements makes it 0, so the frequent path needs no check for these messages.
const GIVEN_UP: u32 = 1 << 31;

impl UnackedMessage {
    /// Returns whether an acknowledgement is awaited.
    pub fn is_awaited(&self) -> bool {
        self.missing > 0 && self.missing <= GIVEN_UP / 2
    }

    /// Returns whether the message was given up.
    pub fn is_given_up(&self) -> bool {
        self.missing > GIVEN_UP / 2
    }

    /// Gives the message up. Its payload may be released.
    pub fn give_up(&mut self) {
        self.missing = GIVEN_UP;
    }
}

/// Content of a packet beyond its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct UnackedPacket {
    /// Offset of its fragment in the message; `None` for whole messages.
    pub offset: Option<u32>,
    /// Length of its fragment in bytes.
    pub piece: u32,
    /// Time from its first transmission to its last one, in ns; 0 if it was sent once.
    pub repeated_for_ns: u32,
}

impl UnackedPacket {
    /// Creates the record of a packet that was sent once: a fragment of `piece` bytes, or whole
    /// messages.
    pub fn new(offset: Option<u32>, piece: u32) -> Self {
        Self { offset, piece, repeated_for_ns: 0 }
    }

    pub fn was_retransmitted(&self) -> bool {
        self.repeated_for_ns > 0
    }

    /// Records that the packet, which was last sent at `sent`, is sent again at `now`.
    pub fn on_retransmit(&mut self, sent: Mono, now: Mono) {
        let since_ns = u32::try_from(now.since_ns(sent)).unwrap_or(u32::MAX);
        self.repeated_for_ns = self.repeated_for_ns.saturating_add(since_ns.max(1));
    }
}

/// Packets to retransmit: those before `until` that were sent at or before `overdue`, and those
/// before `gap` that were sent only once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RetransmitRange {
    pub next: Psn,
    pub until: Psn,
    pub overdue: Mono,
    pub gap: Psn,
    /// How many packets may be retransmitted before the next acknowledgement.
    pub budget: u32,
}

/// Messages and packets of a [`super::flight::Flight`], with the same sequence numbers.
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
