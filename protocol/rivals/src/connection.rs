//! Reliable, ordered connection to one member, with go-back-N retransmission.

use alloc::collections::VecDeque;

use bytes::Bytes;
use onepipe_base::{Mono, Psn};

use crate::entry::{ACK_LEN, Entry};

/// One end of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Connection {
    /// Unacknowledged entries, followed by those that were not sent yet.
    queue: VecDeque<Entry>,
    /// PSN of the first entry in the queue.
    first: Psn,
    /// Number of entries in flight, and their bytes.
    sent: usize,
    sent_bytes: usize,
    /// PSN behind the highest one ever sent.
    highest_sent: Psn,
    /// Start of the retransmission timeout: the last progress, or the first transmission.
    progress: Mono,
    /// Next PSN expected from the peer.
    expected: Psn,
    /// PSN before which received entries have been processed. Only these are acknowledged.
    done: Psn,
    /// Last acknowledgement sent.
    last_acked: Psn,
    /// The peer has retransmitted, so it has missed an acknowledgement.
    is_ack_due: bool,
}

/// Result of reading a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadResult {
    /// Number of entries that were out of order or invalid.
    pub refused: u64,
    /// Whether the frame has acknowledged entries, so that the window may have opened.
    pub has_space: bool,
}

impl Connection {
    pub(crate) fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            first: Psn::FIRST,
            sent: 0,
            sent_bytes: 0,
            highest_sent: Psn::FIRST,
            progress: Mono::from_ns(0),
            expected: Psn::FIRST,
            done: Psn::FIRST,
            last_acked: Psn::FIRST,
            is_ack_due: false,
        }
    }

    pub(crate) fn push(&mut self, entry: Entry) {
        self.queue.push_back(entry);
    }

    /// Returns the number of entries that are not acknowledged.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns the number of entries in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.sent
    }

    /// Returns whether a frame may be sent now.
    pub(crate) fn wants_transmit(&self, window_bytes: usize) -> bool {
        let has_more = self.sent < self.queue.len();
        (has_more && (self.sent == 0 || self.sent_bytes < window_bytes)) || self.is_ack_due
    }

    /// Returns whether processed entries have not been acknowledged yet.
    pub(crate) fn has_pending_ack(&self) -> bool {
        self.last_acked != self.done
    }

    /// Returns the number of processed entries that have not been acknowledged.
    pub(crate) fn unacked(&self) -> u32 {
        self.done.since(self.last_acked) as u32
    }

    /// Records that one more entry has been processed.
    pub(crate) fn complete_one(&mut self) {
        debug_assert!(self.done.is_before(self.expected), "what is processed was received");
        self.done = self.done.plus(1);
    }

    /// Returns whether entries are in flight.
    pub(crate) fn is_waiting(&self) -> bool {
        self.sent > 0
    }

    /// Writes an acknowledgement and as many entries as fit. Returns the PSN of the first entry and
    /// the number of bytes.
    pub(crate) fn write(
        &mut self,
        now: Mono,
        window_bytes: usize,
        entries_max: usize,
        buffer: &mut [u8],
    ) -> (Psn, usize) {
        debug_assert!(buffer.len() >= ACK_LEN, "a frame holds an acknowledgement");
        let psn = self.first.plus(self.sent as u32);
        buffer[..ACK_LEN].copy_from_slice(&self.done.0.to_be_bytes());
        (self.last_acked, self.is_ack_due) = (self.done, false);
        let (mut bytes, mut left) = (ACK_LEN, entries_max);
        while left > 0
            && let Some(entry) = self.queue.get(self.sent)
            && (self.sent == 0 || self.sent_bytes < window_bytes)
            && let Some(more) = entry.write(&mut buffer[bytes..])
        {
            if self.sent == 0 {
                self.progress = now;
            }
            bytes += more;
            left -= 1;
            self.sent += 1;
            self.sent_bytes += more;
        }
        let highest_sent = self.first.plus(self.sent as u32);
        if self.highest_sent.is_before(highest_sent) {
            self.highest_sent = highest_sent;
        }
        debug_assert!(bytes <= buffer.len(), "entries fit the frame");
        debug_assert!(self.sent <= self.queue.len(), "what is sent is queued");
        (psn, bytes)
    }

    /// Panics if the counts of the connection contradict its queue. Takes time linear in the
    /// entries in flight.
    pub(crate) fn check_invariants(&self) {
        assert!(self.sent <= self.queue.len(), "what is in flight is queued");
        let bytes: usize = self.queue.iter().take(self.sent).map(Entry::bytes).sum();
        assert_eq!(self.sent_bytes, bytes, "in flight is the sum of the entries");
        let sent_ever = self.highest_sent.since(self.first);
        assert!(sent_ever >= self.sent as i32, "what is in flight was sent");
        assert!(sent_ever as usize <= self.queue.len(), "and is retained until acknowledged");
        assert!(!self.expected.is_before(self.done), "what is processed was received");
        assert!(!self.done.is_before(self.last_acked), "what is acknowledged was processed");
    }

    /// Reads a frame, and passes entries that arrive in order to `handle`.
    pub(crate) fn read(
        &mut self,
        now: Mono,
        psn: Psn,
        mut bytes: Bytes,
        mut handle: impl FnMut(Entry),
    ) -> Option<ReadResult> {
        let ack = bytes.get(..ACK_LEN)?.try_into().ok()?;
        let has_space = self.on_ack(now, Psn(u32::from_be_bytes(ack)));
        let mut entries = bytes.split_off(ACK_LEN);
        let (mut psn, mut refused) = (psn, 0);
        while !entries.is_empty() {
            let Some(entry) = Entry::read(&mut entries) else {
                refused += 1;
                break;
            };
            if psn == self.expected {
                self.expected = psn.plus(1);
                handle(entry);
            } else {
                refused += 1;
                self.is_ack_due = true;
            }
            psn = psn.plus(1);
        }
        Some(ReadResult { refused, has_space })
    }

    fn on_ack(&mut self, now: Mono, ack: Psn) -> bool {
        // Ignore stale and invalid acknowledgements. A valid one may cover entries that are queued
        // for retransmission.
        if !self.first.is_before(ack) || self.highest_sent.is_before(ack) {
            return false;
        }
        let known = ack.since(self.first) as usize;
        debug_assert!(known <= self.queue.len(), "an entry is retained until acknowledged");
        for (at, entry) in self.queue.drain(..known).enumerate() {
            self.sent_bytes -= if at < self.sent { entry.bytes() } else { 0 };
        }
        debug_assert!(self.sent > known || self.sent_bytes == 0, "nothing remains in flight");
        self.first = ack;
        self.sent = self.sent.saturating_sub(known);
        self.progress = now;
        true
    }

    /// Retransmits from the first unacknowledged entry if the timeout has expired. Returns whether
    /// it has.
    pub(crate) fn resend(&mut self, now: Mono, resend_ns: u64) -> bool {
        let is_late = self.sent > 0 && now.since_ns(self.progress) >= resend_ns;
        if is_late {
            (self.sent, self.sent_bytes) = (0, 0);
        }
        is_late
    }
}
