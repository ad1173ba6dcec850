//! The send buffer: scatterings that wait to be sent, and payloads that are not yet released.

use onepipe_base::ScatteringId;

use crate::arena::{PayloadArena, PayloadRef};
use crate::{MESSAGE_CHARGE_BYTES, SendError};
use onepipe_reliability::SeqDeque;

/// A waiting scattering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct QueuedScattering {
    pub id: ScatteringId,
    /// Number of its first message, counted over all submitted messages.
    pub first: u64,
    pub messages: u32,
    /// Sent already, overtaking earlier scatterings.
    pub is_sent: bool,
    pub is_unordered: bool,
}

/// A queue entry; its sequence number is the scattering's id. One is written for each scattering,
/// so it has no padding, as [`super::retransmit_buffer::UnackedMessage`] explains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct QueueEntry {
    first: u64,
    messages: u32,
    /// 1 if the scattering was sent.
    sent: u16,
    /// 1 if it is delivered without an order.
    unordered: u16,
}

impl QueueEntry {
    #[inline]
    fn is_sent(&self) -> bool {
        self.sent > 0
    }

    #[inline]
    fn is_unordered(&self) -> bool {
        self.unordered > 0
    }
}

/// A message of a waiting scattering. No padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct QueuedMessage {
    /// Index of the connection to the destination.
    pub to: u32,
    pub len: u32,
    /// [`PayloadRef::NONE`] once the message was reported as failed.
    pub payload_ref: PayloadRef,
}

impl QueuedMessage {
    /// Returns whether the message was reported as failed, because its destination is unreachable.
    #[inline]
    pub fn has_failed(&self) -> bool {
        self.payload_ref == PayloadRef::NONE
    }

    /// Marks the message as failed. Returns its payload, which the caller must release.
    pub fn fail(&mut self) -> PayloadRef {
        core::mem::replace(&mut self.payload_ref, PayloadRef::NONE)
    }

    #[inline]
    pub fn charge(&self) -> u64 {
        u64::from(self.len) + u64::from(MESSAGE_CHARGE_BYTES)
    }
}

/// The bounded send buffer. A queue whose scatterings may overtake each other.
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

    /// Returns the bytes used, per-message charges included.
    pub fn bytes_used(&self) -> usize {
        self.used
    }

    /// Returns the number of queue entries, sent ones behind a waiting one included.
    #[inline]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns the id of the next scattering.
    pub fn next_id(&self) -> ScatteringId {
        ScatteringId(self.queue.next_seq())
    }

    /// Returns the bytes that are not used.
    #[inline]
    pub fn free(&self) -> usize {
        self.bytes_max - self.used
    }

    //= spec/ordering.md#R32
    /// Checks that `need` more bytes fit now. The caller has checked that they fit an empty buffer.
    #[inline]
    pub fn check(&self, need: usize) -> Result<(), SendError> {
        let free = self.free();
        if need > free { Err(SendError::BufferFull { need, free }) } else { Ok(()) }
    }

    /// Adds a message to the scattering that [`SendBuffer::push`] completes. The caller has checked
    /// that it fits. If it `repeats` the payload of the message before it, that is stored once.
    #[inline]
    pub fn push_message(&mut self, to: u32, payload: &[u8], repeats: bool) {
        let payload_ref = if repeats {
            let before = self.messages.get(self.messages.next_seq() - 1).payload_ref;
            self.arena.retain(before);
            before
        } else {
            self.arena.store(payload)
        };
        let len = payload.len() as u32;
        self.used += (len + MESSAGE_CHARGE_BYTES) as usize;
        self.messages.push(QueuedMessage { to, len, payload_ref });
    }

    /// Completes a scattering of the last `messages` messages.
    #[inline]
    pub fn push(&mut self, messages: u32, is_unordered: bool) -> ScatteringId {
        let id = ScatteringId(self.queue.next_seq());
        let first = self.messages.next_seq() - u64::from(messages);
        self.queue.push(QueueEntry {
            first,
            messages,
            sent: 0,
            unordered: u16::from(is_unordered),
        });
        id
    }

    /// Returns the scattering at `position` from the front.
    #[inline]
    pub fn queued(&self, position: usize) -> QueuedScattering {
        let number = self.queue.first_seq() + position as u64;
        let entry = self.queue.get(number);
        QueuedScattering {
            id: ScatteringId(number),
            first: entry.first,
            messages: entry.messages,
            is_sent: entry.is_sent(),
            is_unordered: entry.is_unordered(),
        }
    }

    /// Returns the scattering `ahead` of the oldest, if it has a single message that waits, and so
    /// have the oldest one and all between them; with its message, and whether it is unordered.
    #[inline]
    pub fn single_after(&self, ahead: u64) -> Option<(ScatteringId, &QueuedMessage, bool)> {
        let number = self.queue.first_seq() + ahead;
        if number == self.queue.next_seq() {
            return None;
        }
        let entry = self.queue.get(number);
        if entry.messages != 1 || entry.is_sent() {
            return None;
        }
        Some((ScatteringId(number), self.messages.get(entry.first), entry.is_unordered()))
    }

    /// Removes the `count` oldest scatterings, which have a single message each.
    #[inline]
    pub fn pop_singles(&mut self, count: u64) {
        self.messages.pop_front(count);
        self.queue.pop_front(count);
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

    /// Marks the scattering at `position` as sent. Its payloads stay until they are released.
    #[inline]
    pub fn mark_sent(&mut self, position: usize) {
        self.queue.get_mut(self.queue.first_seq() + position as u64).sent = 1;
        self.pop_sent();
    }

    fn pop_sent(&mut self) {
        while let Some(front) = self.queue.front().filter(|front| front.is_sent()) {
            self.messages.pop_front(u64::from(front.messages));
            self.queue.pop_front(1);
        }
    }

    /// Returns the bytes and the number of the messages that wait to be sent.
    pub fn waiting(&self) -> (usize, usize) {
        let (mut bytes, mut count) = (0, 0);
        for queued in (0..self.len()).map(|position| self.queued(position)) {
            let numbers = queued.first..queued.first + u64::from(queued.messages);
            let messages = numbers.map(|number| self.message(number));
            for message in messages.filter(|message| !queued.is_sent && !message.has_failed()) {
                bytes += message.charge() as usize;
                count += 1;
            }
        }
        (bytes, count)
    }

    /// Returns the number of payloads, each counted as often as messages have it.
    pub fn payloads(&self) -> usize {
        self.arena.references()
    }

    /// Checks that the queue and its messages agree, within the limit.
    pub fn check_invariants(&self) {
        assert!(self.used <= self.bytes_max, "I11: the send buffer stays within its limit");
        assert!(!self.queue.front().is_some_and(QueueEntry::is_sent), "a sent front is removed");
        let mut next = self.messages.first_seq();
        for queued in (0..self.len()).map(|position| self.queued(position)) {
            assert_eq!(queued.first, next, "messages are queued in the order of scatterings");
            assert!(queued.messages > 0, "a scattering has messages");
            next += u64::from(queued.messages);
        }
        assert_eq!(self.messages.next_seq(), next, "each message belongs to a scattering");
        self.arena.check_invariants();
    }

    #[inline]
    pub fn payload(&self, payload_ref: PayloadRef, len: u32) -> &[u8] {
        self.arena.get(payload_ref, len as usize)
    }

    /// Releases the payload of a message.
    #[inline]
    pub fn release(&mut self, payload_ref: PayloadRef, len: u32) {
        self.arena.release(payload_ref);
        self.used -= (len + MESSAGE_CHARGE_BYTES) as usize;
    }
}
