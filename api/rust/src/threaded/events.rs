//! Events on their way to the caller, in batches.

use std::collections::VecDeque;

use crate::Event;
use crate::node::{Node, NodeEvent};

/// Maximum number of events that wait for the caller.
const EVENTS_MAX: usize = 64 << 10;
/// Maximum number of their payload bytes; a single message may be longer.
const BYTES_MAX: usize = 4 << 20;
/// A batch with more memory than this is shrunk before it is filled again.
const RECYCLED_BYTES_MAX: usize = 256 << 10;

/// Events in order, with the concatenated payloads of their messages.
#[derive(Debug, Default)]
struct EventBatch {
    events: Vec<Event<usize>>,
    bytes: Vec<u8>,
}

impl EventBatch {
    fn is_full(&self) -> bool {
        self.events.len() >= EVENTS_MAX || self.bytes.len() >= BYTES_MAX
    }

    fn clear(&mut self) {
        self.events.clear();
        self.events.shrink_to(RECYCLED_BYTES_MAX / size_of::<Event<usize>>());
        self.bytes.clear();
        self.bytes.shrink_to(RECYCLED_BYTES_MAX);
    }

    #[inline]
    fn write(&mut self, node: &mut Node, event: NodeEvent) {
        node.deliver(event, &mut |event| {
            self.events.push(event.map(|payload| {
                self.bytes.extend_from_slice(payload);
                payload.len()
            }));
        });
    }
}

/// Events that the caller has not fetched yet.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    batch: EventBatch,
    /// Events behind a full batch; their messages stay in the receive buffer, so that the senders'
    /// windows close.
    held: VecDeque<NodeEvent>,
}

impl EventQueue {
    /// Whether the caller can fetch something.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.batch.events.is_empty()
    }

    /// Adds an event to the batch, or holds it back while the batch is full.
    #[inline]
    pub(crate) fn push(&mut self, node: &mut Node, event: NodeEvent) {
        match self.held.is_empty() && !self.batch.is_full() {
            true => self.batch.write(node, event),
            false => self.held.push_back(event),
        }
    }

    /// Passes the batch to `reader`, which has read its own. [`EventQueue::refill`] must follow.
    /// Returns whether there is an event to read.
    pub(crate) fn fetch(&mut self, reader: &mut EventReader) -> bool {
        debug_assert!(reader.is_empty(), "unread events would be lost");
        reader.batch.clear();
        (reader.event, reader.byte) = (0, 0);
        std::mem::swap(&mut self.batch, &mut reader.batch);
        !reader.is_empty()
    }

    /// Adds held events to the batch, as far as there is room. Returns whether there were any.
    #[inline]
    pub(crate) fn refill(&mut self, node: &mut Node) -> bool {
        let has_held = !self.held.is_empty();
        while !self.held.is_empty()
            && !self.batch.is_full()
            && let Some(event) = self.held.pop_front()
        {
            self.batch.write(node, event);
        }
        has_held
    }

    /// Adds held events to the batch, regardless of the limits.
    pub(crate) fn release_held(&mut self, node: &mut Node) {
        for event in std::mem::take(&mut self.held) {
            self.batch.write(node, event);
        }
    }
}

/// The events that the caller has fetched, and its position in them.
#[derive(Debug, Default)]
pub(crate) struct EventReader {
    batch: EventBatch,
    /// Index of the next event, and offset of its payload.
    event: usize,
    byte: usize,
}

impl EventReader {
    /// Whether all events were read.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.event == self.batch.events.len()
    }

    /// Returns the unread events.
    pub(crate) fn events(&mut self) -> Events<'_> {
        let Self { batch, event, byte } = self;
        Events { batch, event, byte }
    }
}

/// Received events in order, with borrowed payloads. What is not taken from the iterator is
/// received by the next call.
#[derive(Debug)]
pub struct Events<'a> {
    batch: &'a EventBatch,
    event: &'a mut usize,
    byte: &'a mut usize,
}

impl<'a> Iterator for Events<'a> {
    type Item = Event<&'a [u8]>;

    #[inline]
    fn next(&mut self) -> Option<Event<&'a [u8]>> {
        let event = *self.batch.events.get(*self.event)?;
        *self.event += 1;
        Some(event.map(|payload_len| {
            let begin = *self.byte;
            *self.byte += payload_len;
            &self.batch.bytes[begin..begin + payload_len]
        }))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.batch.events.len() - *self.event;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Events<'_> {}
