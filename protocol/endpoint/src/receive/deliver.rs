//! Handing out messages in the total order.
//!
//! The messages of a packet ascend, so a packet waits in the reorder stage as one entry, by its
//! first message. When that is the next of all, the packet becomes the *cursor*: its messages are
//! handed out from where they lie while nothing else comes before them; otherwise what is left of
//! it goes back into the reorder stage, by its next message. Streams that do not interleave cost
//! one entry a packet, streams that do cost one a message.

use onepipe_base::{ProcessId, Timestamp};
use onepipe_wire::{MESSAGE_HEADER_OCTETS, Message, Messages};

use super::{Receiver, order};
use crate::reorder::Entry;
use crate::segments::{Place, Segments};
use crate::{Config, Delivery, MESSAGE_CHARGE_OCTETS};
use onepipe_wire::{Opcode, Service};

/// A message in the receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Held {
    pub place: Place,
    /// The life of its sender, so that a former life's messages are not counted in this one's
    /// window.
    pub life: u16,
    pub in_room: bool,
}

/// What waits in the reorder stage: a whole message, or the rest of a packet from a message on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Waiting {
    pub place: Place,
    /// Of the message, or of all that is left of the packet.
    pub octets: u32,
    pub life: u16,
    pub in_room: bool,
    pub is_packet: bool,
}

/// A packet that messages are being handed out from, at its next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cursor {
    /// What the deltas of its messages are added to.
    base: Timestamp,
    from: ProcessId,
    rest: Waiting,
    timestamp: Timestamp,
    index: u16,
    octets: u32,
}

impl Cursor {
    fn entry(&self) -> Entry<Waiting> {
        let order = order(self.from, self.rest.life, self.index);
        Entry { timestamp: self.timestamp, order, value: self.rest }
    }

    /// The message at the cursor.
    fn delivery(&self, service: Service) -> Delivery {
        Delivery {
            service,
            timestamp: self.timestamp,
            from: self.from,
            index: self.index,
            octets: self.octets,
            held: Held {
                place: self.rest.place.plus(MESSAGE_HEADER_OCTETS),
                life: self.rest.life,
                in_room: self.rest.in_room,
            },
        }
    }

    /// The cursor at the message behind this one, if there is one.
    #[inline]
    fn advanced(mut self, segments: &Segments) -> Option<Self> {
        let passed = MESSAGE_HEADER_OCTETS as u32 + self.octets;
        self.rest.place = self.rest.place.plus(passed as usize);
        self.rest.octets -= passed;
        let head = head(segments, &self.rest)?;
        self.timestamp = self.base.wrapping_add_ns(u64::from(head.delta_ns));
        self.index = head.index;
        self.octets = head.payload.len() as u32;
        Some(self)
    }
}

/// The first message of what is left of a packet. It was measured when it arrived.
#[inline]
fn head<'a>(segments: &'a Segments, rest: &Waiting) -> Option<Message<'a>> {
    Messages::new(segments.get(rest.place, rest.octets as usize)).next()?.ok()
}

impl Receiver {
    /// The next message in the total order, if it lies below the barrier.
    #[inline]
    pub fn next(&mut self, barrier: Timestamp) -> Option<Delivery> {
        #[cfg(feature = "bug-deliver-at-barrier")]
        let barrier = barrier.wrapping_add_ns(1);
        if let Some(cursor) = self.cursor {
            let order = order(cursor.from, cursor.rest.life, cursor.index);
            let key = (cursor.timestamp, order);
            if cursor.timestamp < barrier && self.reorder.is_behind(key) {
                self.cursor = cursor.advanced(&self.segments);
                self.waiting -= 1;
                return Some(cursor.delivery(self.service));
            }
            self.cursor = None;
            self.reorder.put_back(cursor.entry());
        }
        let entry = self.reorder.pop(barrier)?;
        self.waiting -= 1;
        Some(self.open(entry))
    }

    /// The message of an entry that is the next of all; what is left of its packet becomes the
    /// cursor.
    #[inline]
    fn open(&mut self, entry: Entry<Waiting>) -> Delivery {
        let (rest, timestamp) = (entry.value, entry.timestamp);
        let from = ProcessId((entry.order >> 32) as u32);
        let index = entry.order as u16;
        let held = Held { place: rest.place, life: rest.life, in_room: rest.in_room };
        if let Some(head) = rest.is_packet.then(|| head(&self.segments, &rest)).flatten() {
            let base = timestamp.saturating_sub_ns(u64::from(head.delta_ns));
            let octets = head.payload.len() as u32;
            let cursor = Cursor { base, from, rest, timestamp, index, octets };
            self.cursor = cursor.advanced(&self.segments);
            return cursor.delivery(self.service);
        }
        let (service, octets) = (self.service, rest.octets);
        Delivery { service, timestamp, from, index, octets, held }
    }

    #[inline]
    pub fn payload(&self, delivery: &Delivery) -> &[u8] {
        self.segments.get(delivery.held.place, delivery.octets as usize)
    }

    /// The application is through with a message. Answers its charge and whether it was in room.
    #[inline]
    pub fn release(&mut self, config: &Config, delivery: &Delivery) -> (u64, bool) {
        let held = delivery.held;
        let charge = u64::from(delivery.octets) + u64::from(MESSAGE_CHARGE_OCTETS);
        self.segments.release(held.place);
        if delivery.from == config.process {
            self.held -= charge;
            if held.in_room {
                self.room_used -= charge;
                self.give_room();
            }
        } else if let Some(at) = self.peers.find(delivery.from) {
            self.unhold(at, held.life, (charge, charge), held.in_room);
            if u64::from(self.peers.peek(at).freed) >= self.window / 4 {
                self.answer_now(at, Opcode::Ack);
            }
        }
        (charge, held.in_room)
    }
}
