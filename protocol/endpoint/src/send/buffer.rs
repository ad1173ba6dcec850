//! Scatterings that were submitted and have not left.

use onepipe_base::ScatteringId;

use crate::arena::{PayloadArena, PayloadRef};
use crate::seq_deque::SeqDeque;
use crate::{MESSAGE_CHARGE_BYTES, SendError};

/// A scattering that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Queued {
    pub id: ScatteringId,
    /// The number of its first message among all ever submitted.
    pub first: u64,
    pub messages: u32,
    /// Left already, overtaking the ones before it.
    pub is_sent: bool,
}

/// The same as it lies in the queue, its id being its number there. Words without a gap, as for
/// [`super::retransmit_buffer::UnackedMessage`]: one is written for each scattering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct QueueEntry {
    first: u64,
    messages: u32,
    /// 1: it has left.
    sent: u32,
}

impl QueueEntry {
    #[inline]
    fn is_sent(&self) -> bool {
        self.sent > 0
    }
}

/// A message of a scattering that waits. Words without a gap, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct QueuedMessage {
    /// Index of the destination among the connections.
    pub to: u32,
    pub len: u32,
    /// Nowhere once it is reported as failed.
    pub payload_ref: PayloadRef,
}

impl QueuedMessage {
    /// Reported as failed: its destination is out of reach.
    #[inline]
    pub fn has_failed(&self) -> bool {
        self.payload_ref == PayloadRef::NONE
    }

    /// It is reported as failed. Answers where its payload lies, which is to be released.
    pub fn fail(&mut self) -> PayloadRef {
        core::mem::replace(&mut self.payload_ref, PayloadRef::NONE)
    }

    pub fn charge(&self) -> u64 {
        u64::from(self.len) + u64::from(MESSAGE_CHARGE_BYTES)
    }
}

/// The bounded send buffer, first in, first out but for overtaking.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SendBuffer {
    queue: SeqDeque<QueueEntry>,
    messages: SeqDeque<QueuedMessage>,
    arena: PayloadArena,
    used: usize,
    bytes_max: usize,
}

impl SendBuffer {
    pub fn new(bytes_max: usize) -> Self {
        Self {
            queue: SeqDeque::new(),
            messages: SeqDeque::new(),
            arena: PayloadArena::new(),
            used: 0,
            bytes_max,
        }
    }

    /// Bytes held, charges included.
    pub fn bytes_used(&self) -> usize {
        self.used
    }

    /// How many scatterings wait, those that have overtaken others included.
    #[inline]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether `need` more bytes fit now; that they would fit an empty buffer is known.
    #[inline]
    pub fn check(&self, need: usize) -> Result<(), SendError> {
        let free = self.bytes_max - self.used;
        if need > free { Err(SendError::BufferFull { need, free }) } else { Ok(()) }
    }

    /// Adds a message to the scattering that [`SendBuffer::push`] completes. Room was checked.
    #[inline]
    pub fn push_message(&mut self, to: u32, payload: &[u8]) {
        let payload_ref = self.arena.alloc(payload.len(), 1);
        self.arena.get_mut(payload_ref, payload.len()).copy_from_slice(payload);
        let len = payload.len() as u32;
        let message = QueuedMessage { to, len, payload_ref };
        self.used += message.charge() as usize;
        self.messages.push(message);
    }

    /// Completes a scattering of the last `messages` messages.
    #[inline]
    pub fn push(&mut self, messages: u32) -> ScatteringId {
        let id = ScatteringId(self.queue.next());
        let first = self.messages.next() - u64::from(messages);
        self.queue.push(QueueEntry { first, messages, sent: 0 });
        id
    }

    /// The scattering at `position` from the front.
    #[inline]
    pub fn queued(&self, position: usize) -> Queued {
        let number = self.queue.first() + position as u64;
        let entry = self.queue.get(number);
        Queued {
            id: ScatteringId(number),
            first: entry.first,
            messages: entry.messages,
            is_sent: entry.is_sent(),
        }
    }

    /// The oldest scattering, if it has a single message.
    #[inline]
    pub fn oldest_single(&self) -> Option<(ScatteringId, &QueuedMessage)> {
        let oldest = self.queue.front().filter(|oldest| oldest.messages == 1)?;
        Some((ScatteringId(self.queue.first()), self.messages.get(oldest.first)))
    }

    /// The oldest scattering, which has a single message, leaves.
    #[inline]
    pub fn send_single(&mut self) {
        self.messages.pop_front(1);
        self.queue.pop_front(1);
        if self.queue.front().is_some_and(QueueEntry::is_sent) {
            self.pop_sent();
        }
    }

    #[inline]
    pub fn message(&self, number: u64) -> &QueuedMessage {
        self.messages.get(number)
    }

    #[inline]
    pub fn message_mut(&mut self, number: u64) -> &mut QueuedMessage {
        self.messages.get_mut(number)
    }

    /// The scattering at `position` leaves the queue; its payloads stay until released one by one.
    #[inline]
    pub fn mark_sent(&mut self, position: usize) {
        self.queue.get_mut(self.queue.first() + position as u64).sent = 1;
        self.pop_sent();
    }

    fn pop_sent(&mut self) {
        while let Some(front) = self.queue.front().filter(|front| front.is_sent()) {
            self.messages.pop_front(u64::from(front.messages));
            self.queue.pop_front(1);
        }
    }

    #[inline]
    pub fn payload(&self, payload_ref: PayloadRef, len: u32) -> &[u8] {
        self.arena.get(payload_ref, len as usize)
    }

    /// The message's payload is no longer needed here.
    #[inline]
    pub fn release(&mut self, payload_ref: PayloadRef, len: u32) {
        self.arena.release(payload_ref);
        self.used -= (len + MESSAGE_CHARGE_BYTES) as usize;
    }
}
