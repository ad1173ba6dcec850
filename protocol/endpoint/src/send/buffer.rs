//! Scatterings that were submitted and have not left.

use onepipe_base::ScatteringId;

use crate::numbered::Numbered;
use crate::segments::{Place, Segments};
use crate::{MESSAGE_CHARGE_BYTES, SendError};

/// A scattering that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Queued {
    pub id: ScatteringId,
    /// The number of its first message among all ever submitted.
    pub first: u64,
    pub messages: u32,
    /// Left already, overtaking the ones before it.
    pub has_left: bool,
}

/// The same as it lies in the queue, its id being its number there. Words without a gap, as for
/// [`super::keep::Kept`]: one is written for each scattering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Waiting {
    first: u64,
    messages: u32,
    /// 1: it has left.
    left: u32,
}

impl Waiting {
    #[inline]
    fn has_left(&self) -> bool {
        self.left > 0
    }
}

/// A message of a scattering that waits. Words without a gap, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct QueuedMessage {
    /// Index of the destination among the connections.
    pub to: u32,
    pub bytes: u32,
    /// Nowhere once it is reported as failed.
    pub place: Place,
}

impl QueuedMessage {
    /// Reported as failed: its destination is out of reach.
    #[inline]
    pub fn has_failed(&self) -> bool {
        self.place == Place::NOWHERE
    }

    /// It is reported as failed. Answers where its payload lies, which is to be released.
    pub fn fail(&mut self) -> Place {
        core::mem::replace(&mut self.place, Place::NOWHERE)
    }

    pub fn charge(&self) -> u64 {
        u64::from(self.bytes) + u64::from(MESSAGE_CHARGE_BYTES)
    }
}

/// The bounded send buffer, first in, first out but for overtaking.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SendBuffer {
    queue: Numbered<Waiting>,
    messages: Numbered<QueuedMessage>,
    segments: Segments,
    bytes: usize,
    bytes_max: usize,
}

impl SendBuffer {
    pub fn new(bytes_max: usize) -> Self {
        Self {
            queue: Numbered::new(),
            messages: Numbered::new(),
            segments: Segments::new(),
            bytes: 0,
            bytes_max,
        }
    }

    /// Bytes held, charges included.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many scatterings wait, those that have overtaken others included.
    #[inline]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether `need` more bytes fit now; that they would fit an empty buffer is known.
    #[inline]
    pub fn check(&self, need: usize) -> Result<(), SendError> {
        let free = self.bytes_max - self.bytes;
        if need > free { Err(SendError::BufferFull { need, free }) } else { Ok(()) }
    }

    /// Adds a message to the scattering that [`SendBuffer::push`] completes. Room was checked.
    #[inline]
    pub fn push_message(&mut self, to: u32, payload: &[u8]) {
        let place = self.segments.reserve(payload.len(), 1);
        self.segments.get_mut(place, payload.len()).copy_from_slice(payload);
        let bytes = payload.len() as u32;
        let message = QueuedMessage { to, bytes, place };
        self.bytes += message.charge() as usize;
        self.messages.push(message);
    }

    /// Completes a scattering of the last `messages` messages.
    #[inline]
    pub fn push(&mut self, messages: u32) -> ScatteringId {
        let id = ScatteringId(self.queue.next());
        let first = self.messages.next() - u64::from(messages);
        self.queue.push(Waiting { first, messages, left: 0 });
        id
    }

    /// The scattering at `position` from the front.
    #[inline]
    pub fn queued(&self, position: usize) -> Queued {
        let number = self.queue.first() + position as u64;
        let waiting = self.queue.get(number);
        Queued {
            id: ScatteringId(number),
            first: waiting.first,
            messages: waiting.messages,
            has_left: waiting.has_left(),
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
    pub fn leave_single(&mut self) {
        self.messages.forget(1);
        self.queue.forget(1);
        if self.queue.front().is_some_and(Waiting::has_left) {
            self.forget_left();
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
    pub fn leave(&mut self, position: usize) {
        self.queue.get_mut(self.queue.first() + position as u64).left = 1;
        self.forget_left();
    }

    fn forget_left(&mut self) {
        while let Some(front) = self.queue.front().filter(|front| front.has_left()) {
            self.messages.forget(u64::from(front.messages));
            self.queue.forget(1);
        }
    }

    #[inline]
    pub fn payload(&self, place: Place, bytes: u32) -> &[u8] {
        self.segments.get(place, bytes as usize)
    }

    /// The message's payload is no longer needed here.
    #[inline]
    pub fn release(&mut self, place: Place, bytes: u32) {
        self.segments.release(place);
        self.bytes -= (bytes + MESSAGE_CHARGE_BYTES) as usize;
    }
}
