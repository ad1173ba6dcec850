//! Events on their way from the driving thread to the caller's thread, in batches.

use std::collections::VecDeque;

use rtrb::{Consumer, Producer, RingBuffer};

use crate::Event;
use crate::node::{Node, NodeEvent};

/// Number of batches in circulation.
const BATCHES_MAX: usize = 64;
/// Maximum number of events of a batch.
const BATCH_EVENTS_MAX: usize = 1024;
/// Maximum number of payload bytes of a batch; a longer message has a batch of its own.
const BATCH_BYTES_MAX: usize = 64 << 10;
/// A batch with more memory than this is shrunk before it is reused.
const RECYCLED_BYTES_MAX: usize = 256 << 10;

/// Events in order, with the concatenated payloads of their messages.
#[derive(Debug, Default)]
pub(crate) struct EventBatch {
    events: Vec<Event<usize>>,
    bytes: Vec<u8>,
}

impl EventBatch {
    fn is_full(&self) -> bool {
        self.events.len() >= BATCH_EVENTS_MAX || self.bytes.len() >= BATCH_BYTES_MAX
    }

    fn clear(&mut self) {
        self.events.clear();
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

/// The driving thread's end.
#[derive(Debug)]
pub(crate) struct EventWriter {
    batches: Producer<EventBatch>,
    recycled: Consumer<EventBatch>,
    current: Option<EventBatch>,
    /// Events without a batch; their messages stay in the receive buffer, so that the senders'
    /// windows close.
    held: VecDeque<NodeEvent>,
}

/// The caller's end.
#[derive(Debug)]
pub(crate) struct EventReader {
    batches: Consumer<EventBatch>,
    recycled: Producer<EventBatch>,
    current: EventBatch,
    /// Index of the next event of the current batch, and offset of its payload.
    event: usize,
    byte: usize,
}

pub(crate) fn event_channel() -> (EventWriter, EventReader) {
    // The rings also hold the reader's initial batch and the one that `EventWriter::close` adds.
    let (batches, filled) = RingBuffer::new(BATCHES_MAX + 2);
    let (mut returned, recycled) = RingBuffer::new(BATCHES_MAX + 2);
    for _ in 0..BATCHES_MAX {
        // Cannot fail: the ring has capacity for two more.
        let _ = returned.push(EventBatch::default());
    }
    let event_writer = EventWriter { batches, recycled, current: None, held: VecDeque::new() };
    let current = EventBatch::default();
    (event_writer, EventReader { batches: filled, recycled: returned, current, event: 0, byte: 0 })
}

impl EventWriter {
    /// Adds an event to a batch, or holds it back if there is none.
    #[inline]
    pub(crate) fn take(&mut self, node: &mut Node, event: NodeEvent) {
        if self.held.is_empty()
            && let Some(batch) = self.batch()
        {
            return batch.write(node, event);
        }
        self.held.push_back(event);
    }

    /// Adds held events to batches. Returns whether it added any.
    pub(crate) fn flush_held(&mut self, node: &mut Node) -> bool {
        let before = self.held.len();
        while let Some(event) = self.held.pop_front() {
            let Some(batch) = self.batch() else {
                self.held.push_front(event);
                break;
            };
            batch.write(node, event);
        }
        self.held.len() < before
    }

    /// Publishes the current batch if the reader has nothing else to read, or if `is_forced`.
    /// Returns whether the batch was published.
    #[inline]
    pub(crate) fn publish(&mut self, is_forced: bool) -> bool {
        let is_wanted = is_forced || self.batches.slots() == self.batches.buffer().capacity();
        match self.current.take() {
            Some(batch) if is_wanted && !batch.events.is_empty() => self.push(batch),
            other => {
                self.current = other;
                false
            }
        }
    }

    /// Returns whether events wait for a batch, and whether a recycled one is available.
    pub(crate) fn batch_state(&self) -> (bool, bool) {
        (!self.held.is_empty(), !self.recycled.is_empty())
    }

    /// Publishes all events, regardless of the limits.
    pub(crate) fn close(mut self, node: &mut Node) {
        let mut last = self.current.take().unwrap_or_default();
        for event in std::mem::take(&mut self.held) {
            last.write(node, event);
        }
        self.push(last);
    }

    #[inline]
    fn batch(&mut self) -> Option<&mut EventBatch> {
        if let Some(full) = self.current.take_if(|batch| batch.is_full()) {
            self.push(full);
        }
        if self.current.is_none() {
            self.current = self.recycled.pop().ok();
        }
        self.current.as_mut()
    }

    fn push(&mut self, batch: EventBatch) -> bool {
        let is_pushed = self.batches.push(batch).is_ok();
        debug_assert!(is_pushed, "the ring must hold all batches");
        is_pushed
    }
}

impl EventReader {
    /// Whether there is an event to read.
    #[inline]
    pub(crate) fn has_events(&self) -> bool {
        self.event < self.current.events.len() || !self.batches.is_empty()
    }

    /// Passes the next event to `read`. Also returns whether a batch was recycled.
    #[inline]
    pub(crate) fn next<R>(&mut self, read: impl FnOnce(Event<&[u8]>) -> R) -> (Option<R>, bool) {
        let is_batch_returned = self.event == self.current.events.len();
        if is_batch_returned && !self.next_batch() {
            return (None, false);
        }
        let bytes = &self.current.bytes[self.byte..];
        let mut length = 0;
        let event = self.current.events[self.event].map(|payload_len| {
            length = payload_len;
            &bytes[..payload_len]
        });
        self.event += 1;
        self.byte += length;
        (Some(read(event)), is_batch_returned)
    }

    /// Recycles the current batch and takes the next one.
    fn next_batch(&mut self) -> bool {
        loop {
            let Ok(batch) = self.batches.pop() else { return false };
            let mut read = std::mem::replace(&mut self.current, batch);
            (self.event, self.byte) = (0, 0);
            read.clear();
            // Full only after the driving thread has ended.
            let _ = self.recycled.push(read);
            if !self.current.events.is_empty() {
                return true;
            }
        }
    }
}
