//! Delivery of messages in the total order.
//!
//! The messages of a packet ascend, so a packet waits in the reorder stage as one entry with the
//! key of its first message. When that entry is popped, the packet becomes the *cursor*: its
//! messages are delivered in place as long as no other entry precedes them. Otherwise the rest of
//! the packet goes back into the reorder stage with the key of its next message. Streams that do
//! not interleave cost one entry per packet, interleaving ones one per message.

use core::hint::black_box;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{ProcessId, Timestamp};
use onepipe_wire::{MESSAGE_HEADER_LEN, Message, Messages};

use super::{Receiver, order};
use crate::arena::{PayloadArena, PayloadRef};
use crate::reorder::Entry;
use crate::scattering::BufferedMessage;
use crate::{Config, Delivery, MESSAGE_CHARGE_BYTES};
use onepipe_wire::{Opcode, Service};

/// A value in the reorder stage: a whole message, or the rest of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct QueuedPayload {
    pub payload_ref: PayloadRef,
    /// Length of the message, or of the rest of the packet.
    pub len: u32,
    pub generation: u16,
    pub is_reserved: bool,
    pub is_packet: bool,
}

/// The packet or message that is being delivered, at its next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cursor {
    /// Timestamp to which the deltas of the packet's messages are added.
    base: Timestamp,
    from: ProcessId,
    rest: QueuedPayload,
    timestamp: Timestamp,
    index: u16,
    len: u32,
}

impl Cursor {
    /// Returns the cursor at the first message of an entry.
    #[inline]
    pub(super) fn new(entry: Entry<QueuedPayload>, arena: &PayloadArena) -> Self {
        let (rest, timestamp) = (entry.value, entry.timestamp);
        let from = sender_of(&entry);
        let head = rest.is_packet.then(|| first_message(arena, &rest)).flatten();
        let (delta_ns, len) =
            head.map_or((0, rest.len), |head| (head.delta_ns, head.payload.len() as u32));
        let base = timestamp.saturating_sub_ns(u64::from(delta_ns));
        Self { base, from, rest, timestamp, index: entry.order as u16, len }
    }

    /// Returns the timestamp of the message at the cursor.
    pub(super) fn timestamp(&self) -> Timestamp {
        self.timestamp
    }

    /// Returns the sort key of the message at the cursor.
    #[inline]
    fn key(&self) -> (Timestamp, u64) {
        (self.timestamp, order(self.from, self.rest.generation, self.index))
    }

    fn entry(&self) -> Entry<QueuedPayload> {
        let (timestamp, order) = self.key();
        Entry { timestamp, order, value: self.rest }
    }

    #[inline]
    fn delivery(&self, service: Service) -> Delivery {
        Delivery {
            service,
            timestamp: self.timestamp,
            from: self.from,
            index: self.index,
            len: self.len,
            is_unordered: false,
            buffered: BufferedMessage {
                payload_ref: match self.rest.is_packet {
                    true => self.rest.payload_ref.plus(MESSAGE_HEADER_LEN),
                    false => self.rest.payload_ref,
                },
                generation: self.rest.generation,
                is_reserved: self.rest.is_reserved,
            },
        }
    }

    /// Advances to the next message of the packet. Returns false if there is none.
    #[inline]
    fn advance(&mut self, arena: &PayloadArena) -> bool {
        if !self.rest.is_packet {
            return false;
        }
        let passed = MESSAGE_HEADER_LEN as u32 + self.len;
        self.rest.payload_ref = self.rest.payload_ref.plus(passed as usize);
        self.rest.len -= passed;
        let Some(head) = first_message(arena, &self.rest) else { return false };
        self.timestamp = self.base.wrapping_add_ns(u64::from(head.delta_ns));
        self.index = head.index;
        self.len = head.payload.len() as u32;
        true
    }
}

/// Returns the sender of an entry.
#[inline]
fn sender_of(entry: &Entry<QueuedPayload>) -> ProcessId {
    ProcessId((entry.order >> 32) as u32)
}

/// Returns the first message of the rest of a packet. The packet was validated on arrival.
#[inline]
fn first_message<'a>(arena: &'a PayloadArena, rest: &QueuedPayload) -> Option<Message<'a>> {
    Messages::new(arena.get(rest.payload_ref, rest.len as usize)).next()?.ok()
}

impl Receiver {
    /// Returns the next message in the total order if it is below the barrier.
    // Inlined: otherwise the delivery would be written field by field here and copied whole by the
    // caller, which stalls on store forwarding: 15 % of a receiver's time.
    #[inline(always)]
    pub fn next(&mut self, barrier: Timestamp) -> Option<Delivery> {
        let barrier = match makes(Mistake::DeliverAtBarrier) {
            true => barrier.wrapping_add_ns(1),
            false => barrier,
        };
        let is_next = match &self.cursor {
            Some(cursor) => cursor.timestamp < barrier && self.reorder.is_after(cursor.key()),
            None => false,
        };
        if !is_next && !self.open_next(barrier) {
            return None;
        }
        // The delivery is built in one expression and the cursor advances in place, for the same
        // reason.
        let cursor = self.cursor.as_mut()?;
        let delivery = cursor.delivery(self.service);
        if !cursor.advance(&self.arena) {
            self.cursor = None;
        }
        self.waiting -= 1;
        Some(delivery)
    }

    /// Moves the cursor to the next message if it is below the barrier. The rest of the previous
    /// packet goes back into the reorder stage.
    #[inline(never)]
    fn open_next(&mut self, barrier: Timestamp) -> bool {
        if let Some(cursor) = self.cursor.take() {
            self.reorder.reinsert(cursor.entry());
        }
        let Some(entry) = self.reorder.pop(barrier) else { return false };
        // Prefetched together, so that the cache misses overlap.
        let rest = self.reorder.rest_of_fresh_run();
        black_box(rest.iter().fold(0, |all, entry| all ^ self.prefetch_entry(entry)));
        self.cursor = Some(Cursor::new(entry, &self.arena));
        true
    }

    /// Prefetches the payload of an entry and the state of its sender.
    #[inline]
    fn prefetch_entry(&self, entry: &Entry<QueuedPayload>) -> u64 {
        let QueuedPayload { payload_ref, len, .. } = entry.value;
        let first = self.arena.get(payload_ref, len as usize).first().copied();
        self.prefetch(sender_of(entry)) ^ u64::from(first.unwrap_or(0))
    }

    /// Returns the next message without an order.
    pub fn next_unordered(&mut self) -> Option<Delivery> {
        let cursor = self.unordered.front_mut()?;
        let delivery = Delivery { is_unordered: true, ..cursor.delivery(self.service) };
        if !cursor.advance(&self.arena) {
            self.unordered.pop_front();
        }
        self.waiting -= 1;
        Some(delivery)
    }

    /// Returns whether [`Receiver::next_unordered`] has a message.
    #[inline]
    pub fn has_unordered(&self) -> bool {
        !self.unordered.is_empty()
    }

    #[inline]
    pub fn payload(&self, delivery: &Delivery) -> &[u8] {
        self.arena.get(delivery.buffered.payload_ref, delivery.len as usize)
    }

    /// Releases a message. Returns its charge, and whether it used a reservation.
    #[inline]
    pub fn release(&mut self, config: &Config, delivery: &Delivery) -> (u64, bool) {
        let buffered = delivery.buffered;
        let charge = u64::from(delivery.len) + u64::from(MESSAGE_CHARGE_BYTES);
        self.arena.release(buffered.payload_ref);
        if delivery.from == config.process {
            self.buffered -= charge;
            if buffered.is_reserved {
                self.reserved_bytes -= charge;
                self.grant_reservations();
            }
        } else if let Some(peer_index) = self.peers.index_of(delivery.from) {
            let BufferedMessage { generation, is_reserved, .. } = buffered;
            self.release_charge(peer_index, generation, charge, charge, is_reserved);
            if u64::from(self.peers.get(peer_index).freed_since_ack) >= self.window / 4 {
                self.queue_ack(peer_index, Opcode::Ack);
            }
        }
        (charge, buffered.is_reserved)
    }
}
