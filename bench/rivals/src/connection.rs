//! A connection to one member that loses nothing and keeps its order: go back N.

use alloc::collections::VecDeque;

use bytes::Bytes;
use onepipe_base::{Mono, Psn};

use crate::entry::Entry;

/// Bytes in front of the entries of a frame: up to where what came from the other end is done
/// with.
pub(crate) const ACK_LEN: usize = 4;

/// One end of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Connection {
    /// What is not acknowledged yet, and behind it what was not sent yet.
    queue: VecDeque<Entry>,
    /// The number of the first of these.
    first: Psn,
    /// How many of them are on their way, and how many bytes that is.
    sent: usize,
    sent_bytes: usize,
    /// The number behind the last that was ever sent.
    highest_sent: Psn,
    /// When the other end last acknowledged anything new, or the first of them was sent.
    progress: Mono,
    /// What comes next from the other end.
    expected: Psn,
    /// Up to where what came is done with. Only that is acknowledged.
    done: Psn,
    /// What it was last told of that.
    last_acked: Psn,
    /// It repeats itself: it has missed an acknowledgement.
    is_ack_due: bool,
}

/// What a frame has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadResult {
    /// Entries that were not the next ones, or made no sense.
    pub refused: u64,
    /// Whether the other end has room again.
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

    /// How many entries the other end has not acknowledged.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// How many entries have left, and are not acknowledged.
    pub(crate) fn in_flight(&self) -> usize {
        self.sent
    }

    /// Whether anything may be sent now.
    pub(crate) fn wants_transmit(&self, window_bytes: usize) -> bool {
        let has_more = self.sent < self.queue.len();
        (has_more && (self.sent == 0 || self.sent_bytes < window_bytes)) || self.is_ack_due
    }

    /// Whether the other end should be told what has come, before long.
    pub(crate) fn has_pending_ack(&self) -> bool {
        self.last_acked != self.done
    }

    /// How many entries are done with that the other end does not know of.
    pub(crate) fn unacked(&self) -> u32 {
        self.done.since(self.last_acked) as u32
    }

    /// One more entry is done with.
    pub(crate) fn complete_one(&mut self) {
        self.done = self.done.plus(1);
    }

    /// Whether anything is on its way.
    pub(crate) fn is_waiting(&self) -> bool {
        self.sent > 0
    }

    /// Writes as many entries as fit behind an acknowledgement. Answers the number of the first and
    /// how many bytes there are.
    pub(crate) fn write(
        &mut self,
        now: Mono,
        (window_bytes, entries_max): (usize, usize),
        buffer: &mut [u8],
    ) -> (Psn, usize) {
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
        (psn, bytes)
    }

    /// Takes what came in one frame, and hands the entries that are new to `take`.
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
        // Anything but a number between the first and the last sent is old, or nonsense. It may lie
        // behind what was sent again.
        if !self.first.is_before(ack) || self.highest_sent.is_before(ack) {
            return false;
        }
        let known = ack.since(self.first) as usize;
        for (at, entry) in self.queue.drain(..known).enumerate() {
            self.sent_bytes -= if at < self.sent { entry.bytes() } else { 0 };
        }
        self.first = ack;
        self.sent = self.sent.saturating_sub(known);
        self.progress = now;
        true
    }

    /// What has been on its way for too long is sent again, from the first on. Answers whether
    /// there was any.
    pub(crate) fn resend(&mut self, now: Mono, resend_ns: u64) -> bool {
        let is_late = self.sent > 0 && now.since_ns(self.progress) >= resend_ns;
        if is_late {
            (self.sent, self.sent_bytes) = (0, 0);
        }
        is_late
    }
}
