//! Scatterings that were submitted and have not left.

use alloc::collections::VecDeque;

use onepipe_base::ScatteringId;

use crate::segments::{Place, Segments};
use crate::{MESSAGE_CHARGE_OCTETS, SendError};

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

/// A message of a scattering that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct QueuedMessage {
    /// Index of the destination among the connections.
    pub to: u32,
    pub octets: u32,
    pub place: Place,
    /// Reported as failed: its destination is out of reach.
    pub has_failed: bool,
}

impl QueuedMessage {
    pub fn charge(&self) -> u64 {
        u64::from(self.octets) + u64::from(MESSAGE_CHARGE_OCTETS)
    }
}

/// The bounded send buffer, first in, first out but for overtaking.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SendBuffer {
    queue: VecDeque<Queued>,
    messages: VecDeque<QueuedMessage>,
    /// The number of the front of `messages` among all ever submitted.
    forgotten: u64,
    segments: Segments,
    octets: usize,
    octets_max: usize,
    next_id: u64,
}

impl SendBuffer {
    pub fn new(octets_max: usize) -> Self {
        Self {
            queue: VecDeque::new(),
            messages: VecDeque::new(),
            forgotten: 0,
            segments: Segments::new(),
            octets: 0,
            octets_max,
            next_id: 0,
        }
    }

    /// Octets held, charges included.
    pub fn octets(&self) -> usize {
        self.octets
    }

    /// How many scatterings wait, those that have overtaken others included.
    #[inline]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether `need` more octets fit.
    #[inline]
    pub fn check(&self, need: usize) -> Result<(), SendError> {
        if need > self.octets_max {
            return Err(SendError::ScatteringTooLarge { need, max: self.octets_max });
        }
        let free = self.octets_max - self.octets;
        if need > free { Err(SendError::BufferFull { need, free }) } else { Ok(()) }
    }

    /// Adds a message to the scattering that [`SendBuffer::push`] completes. Room was checked.
    #[inline]
    pub fn push_message(&mut self, to: u32, payload: &[u8]) {
        let place = self.segments.reserve(payload.len(), 1);
        self.segments.get_mut(place, payload.len()).copy_from_slice(payload);
        let octets = payload.len() as u32;
        let message = QueuedMessage { to, octets, place, has_failed: false };
        self.octets += message.charge() as usize;
        self.messages.push_back(message);
    }

    /// Completes a scattering of the last `messages` messages.
    #[inline]
    pub fn push(&mut self, messages: u32) -> ScatteringId {
        let id = ScatteringId(self.next_id);
        self.next_id += 1;
        let first = self.forgotten + self.messages.len() as u64 - u64::from(messages);
        self.queue.push_back(Queued { id, first, messages, has_left: false });
        id
    }

    /// The scattering at `position` from the front.
    #[inline]
    pub fn queued(&self, position: usize) -> Queued {
        self.queue[position]
    }

    #[inline]
    pub fn message(&self, number: u64) -> &QueuedMessage {
        &self.messages[(number - self.forgotten) as usize]
    }

    #[inline]
    pub fn message_mut(&mut self, number: u64) -> &mut QueuedMessage {
        &mut self.messages[(number - self.forgotten) as usize]
    }

    /// The scattering at `position` leaves the queue; its payloads stay until released one by one.
    #[inline]
    pub fn leave(&mut self, position: usize) {
        self.queue[position].has_left = true;
        while let Some(front) = self.queue.front().filter(|front| front.has_left) {
            for _ in 0..front.messages {
                self.messages.pop_front();
            }
            self.forgotten += u64::from(front.messages);
            self.queue.pop_front();
        }
    }

    #[inline]
    pub fn payload(&self, place: Place, octets: u32) -> &[u8] {
        self.segments.get(place, octets as usize)
    }

    /// The message's payload is no longer needed here.
    #[inline]
    pub fn release(&mut self, place: Place, octets: u32) {
        self.segments.release(place);
        self.octets -= (octets + MESSAGE_CHARGE_OCTETS) as usize;
    }
}
