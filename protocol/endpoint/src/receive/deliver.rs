//! Handing out messages in the total order.
//!
//! The messages of a packet ascend, so a packet waits in the reorder stage as one entry, by its
//! first message. When that is the next of all, the packet becomes the *cursor*: its messages are
//! handed out from where they lie while nothing else comes before them; otherwise what is left of
//! it goes back into the reorder stage, by its next message. Streams that do not interleave cost
//! one entry a packet, streams that do cost one a message.

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{ProcessId, Timestamp};
use onepipe_wire::{MESSAGE_HEADER_LEN, Message, Messages};

use super::{Receiver, order};
use crate::reorder::Entry;
use crate::segments::{Place, Segments};
use crate::{Config, Delivery, MESSAGE_CHARGE_BYTES};
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
    pub bytes: u32,
    pub life: u16,
    pub in_room: bool,
    pub is_packet: bool,
}

/// A packet, or a whole message, that is being handed out, at its next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cursor {
    /// What the deltas of its messages are added to.
    base: Timestamp,
    from: ProcessId,
    rest: Waiting,
    timestamp: Timestamp,
    index: u16,
    bytes: u32,
}

impl Cursor {
    /// Its message's place in the total order.
    #[inline]
    fn key(&self) -> (Timestamp, u64) {
        (self.timestamp, order(self.from, self.rest.life, self.index))
    }

    fn entry(&self) -> Entry<Waiting> {
        let (timestamp, order) = self.key();
        Entry { timestamp, order, value: self.rest }
    }

    /// The message at the cursor.
    #[inline]
    fn delivery(&self, service: Service) -> Delivery {
        Delivery {
            service,
            timestamp: self.timestamp,
            from: self.from,
            index: self.index,
            bytes: self.bytes,
            held: Held {
                place: match self.rest.is_packet {
                    true => self.rest.place.plus(MESSAGE_HEADER_LEN),
                    false => self.rest.place,
                },
                life: self.rest.life,
                in_room: self.rest.in_room,
            },
        }
    }

    /// Goes on to the message behind this one. Answers whether there is one.
    #[inline]
    fn advance(&mut self, segments: &Segments) -> bool {
        if !self.rest.is_packet {
            return false;
        }
        let passed = MESSAGE_HEADER_LEN as u32 + self.bytes;
        self.rest.place = self.rest.place.plus(passed as usize);
        self.rest.bytes -= passed;
        let Some(head) = head(segments, &self.rest) else { return false };
        self.timestamp = self.base.wrapping_add_ns(u64::from(head.delta_ns));
        self.index = head.index;
        self.bytes = head.payload.len() as u32;
        true
    }
}

/// The first message of what is left of a packet. It was measured when it arrived.
#[inline]
fn head<'a>(segments: &'a Segments, rest: &Waiting) -> Option<Message<'a>> {
    Messages::new(segments.get(rest.place, rest.bytes as usize)).next()?.ok()
}

impl Receiver {
    /// The next message in the total order, if it lies below the barrier.
    // Out of line, the delivery would be written in parts here and copied whole by the caller,
    // which has to wait for the parts to leave the store buffer: 15 % of a receiver's time.
    #[inline(always)]
    pub fn next(&mut self, barrier: Timestamp) -> Option<Delivery> {
        let barrier = match makes(Mistake::DeliverAtBarrier) {
            true => barrier.wrapping_add_ns(1),
            false => barrier,
        };
        let is_at_hand = match &self.cursor {
            Some(cursor) => cursor.timestamp < barrier && self.reorder.is_behind(cursor.key()),
            None => false,
        };
        if !is_at_hand && !self.open_next(barrier) {
            return None;
        }
        // One place for all, and the cursor moves on where it lies, for the same reason.
        let cursor = self.cursor.as_mut()?;
        let delivery = cursor.delivery(self.service);
        if !cursor.advance(&self.segments) {
            self.cursor = None;
        }
        self.waiting -= 1;
        Some(delivery)
    }

    /// Puts the cursor at the next message of all, if it lies below the barrier; what it was at
    /// goes back into the reorder stage.
    #[inline(never)]
    fn open_next(&mut self, barrier: Timestamp) -> bool {
        if let Some(cursor) = self.cursor.take() {
            self.reorder.put_back(cursor.entry());
        }
        let Some(entry) = self.reorder.pop(barrier) else { return false };
        let (rest, timestamp) = (entry.value, entry.timestamp);
        let from = ProcessId((entry.order >> 32) as u32);
        let head = rest.is_packet.then(|| head(&self.segments, &rest)).flatten();
        let (delta_ns, bytes) =
            head.map_or((0, rest.bytes), |head| (head.delta_ns, head.payload.len() as u32));
        let base = timestamp.saturating_sub_ns(u64::from(delta_ns));
        let index = entry.order as u16;
        self.cursor = Some(Cursor { base, from, rest, timestamp, index, bytes });
        true
    }

    #[inline]
    pub fn payload(&self, delivery: &Delivery) -> &[u8] {
        self.segments.get(delivery.held.place, delivery.bytes as usize)
    }

    /// The application is through with a message. Answers its charge and whether it was in room.
    #[inline]
    pub fn release(&mut self, config: &Config, delivery: &Delivery) -> (u64, bool) {
        let held = delivery.held;
        let charge = u64::from(delivery.bytes) + u64::from(MESSAGE_CHARGE_BYTES);
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
