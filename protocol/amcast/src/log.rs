//! Log of a group: the proposals of its leaders, in the order of their timestamps.

use alloc::vec;
use alloc::vec::Vec;

use onepipe_wire::{GroupSet, LogicalTime, MessageId};

/// Entry of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    pub id: MessageId,
    pub groups: GroupSet,
    /// Timestamp that the group has proposed.
    pub timestamp: LogicalTime,
    /// Final timestamp, once known: then the position is decided and never changes.
    pub decided: Option<LogicalTime>,
    /// Whether the barrier has passed the final timestamp: the message can be delivered.
    pub is_complete: bool,
}

impl Entry {
    /// Returns whether both entries are the same proposal, regardless of its state.
    pub fn is_same_proposal(&self, other: &Self) -> bool {
        self.id == other.id && self.timestamp == other.timestamp
    }
}

/// The last positions of a log, in a ring buffer together with their messages. Timestamps ascend.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Log {
    entries: Vec<Option<Entry>>,
    lengths: Vec<u16>,
    messages: Vec<u8>,
    message_len_max: usize,
    /// Slots that hold positions received out of order, that is, behind missing ones.
    buffered: Vec<bool>,
    /// End of the last position received out of order.
    buffered_end: u64,
    end: u64,
    first_undecided: u64,
    first_open: u64,
}

impl Log {
    pub fn new(positions: usize, message_len_max: usize) -> Self {
        Self {
            entries: vec![None; positions],
            lengths: vec![0; positions],
            messages: vec![0; positions * message_len_max],
            message_len_max,
            buffered: vec![false; positions],
            buffered_end: 0,
            end: 0,
            first_undecided: 0,
            first_open: 0,
        }
    }

    /// Returns the position behind the last one.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Returns the first undecided position, or the end of the log.
    pub fn first_undecided(&self) -> u64 {
        self.first_undecided
    }

    /// Returns the first incomplete position, or the end of the log.
    pub fn first_open(&self) -> u64 {
        self.first_open
    }

    /// Returns the first position that is still held.
    pub fn first(&self) -> u64 {
        self.end.max(self.buffered_end).saturating_sub(self.entries.len() as u64)
    }

    /// Returns whether there is space for the next position. Incomplete positions are never
    /// overwritten.
    pub fn has_space(&self) -> bool {
        self.end - self.first_open < self.entries.len() as u64
    }

    fn slot(&self, position: u64) -> usize {
        (position % self.entries.len() as u64) as usize
    }

    pub fn get(&self, position: u64) -> Option<&Entry> {
        if position < self.first() || position >= self.end {
            return None;
        }
        self.entries[self.slot(position)].as_ref()
    }

    /// Returns the position of a message by a linear search of all positions held.
    pub fn find(&self, id: MessageId) -> Option<u64> {
        let is_it = |position: &u64| self.get(*position).is_some_and(|entry| entry.id == id);
        (self.first()..self.end).rev().find(is_it)
    }

    pub fn message(&self, position: u64) -> &[u8] {
        let slot = self.slot(position);
        let begin = slot * self.message_len_max;
        &self.messages[begin..begin + usize::from(self.lengths[slot])]
    }

    fn put(&mut self, position: u64, entry: Entry, message: &[u8]) {
        let slot = self.slot(position);
        let message = &message[..message.len().min(self.message_len_max)];
        let begin = slot * self.message_len_max;
        self.messages[begin..begin + message.len()].copy_from_slice(message);
        self.lengths[slot] = message.len() as u16;
        self.entries[slot] = Some(entry);
        self.buffered[slot] = false;
    }

    /// Buffers a position received out of order, if there is space. Buffered positions must be
    /// cleared on a change of epoch ([`Log::clear_buffered`]).
    pub fn buffer(&mut self, position: u64, entry: Entry, message: &[u8]) {
        let has_space =
            position >= self.end && position - self.first_open < self.entries.len() as u64;
        if has_space && self.first_buffered().is_none_or(|first| first != position) {
            self.put(position, entry, message);
            let slot = self.slot(position);
            self.buffered[slot] = true;
            self.buffered_end = self.buffered_end.max(position + 1);
        }
    }

    /// Returns the first buffered position.
    pub fn first_buffered(&self) -> Option<u64> {
        (self.end..self.buffered_end).find(|position| self.buffered[self.slot(*position)])
    }

    /// Returns the next entry if it is buffered.
    pub fn next_buffered(&self) -> Option<Entry> {
        let slot = self.slot(self.end);
        if self.end < self.buffered_end && self.buffered[slot] { self.entries[slot] } else { None }
    }

    /// Appends the next entry, which must be buffered.
    pub fn push_buffered(&mut self) {
        let slot = self.slot(self.end);
        debug_assert!(self.buffered[slot], "the caller has found it");
        debug_assert!(self.entries[slot].is_some(), "a buffered position has an entry");
        debug_assert!(self.has_space(), "no incomplete position is overwritten");
        self.buffered[slot] = false;
        self.end += 1;
        self.advance_undecided();
    }

    /// Drops all buffered positions.
    pub fn clear_buffered(&mut self) {
        for position in self.end..self.buffered_end {
            let slot = self.slot(position);
            if core::mem::take(&mut self.buffered[slot]) {
                self.entries[slot] = None;
            }
        }
        self.buffered_end = 0;
    }

    /// Appends an entry. There must be space.
    pub fn push(&mut self, entry: Entry, message: &[u8]) {
        debug_assert!(self.has_space(), "no incomplete position is overwritten");
        self.put(self.end, entry, message);
        self.end += 1;
        self.advance_undecided();
    }

    /// Replaces an undecided entry by the one that was decided for its position, and returns the
    /// replaced entry.
    pub fn replace(&mut self, position: u64, entry: Entry, message: &[u8]) -> Option<Entry> {
        let old = *self.get(position)?;
        //= spec/amcast.md#R9
        if old.decided.is_some() {
            return None;
        }
        debug_assert!(position >= self.first_undecided, "a decided position never changes");
        self.put(position, entry, message);
        self.advance_undecided();
        Some(old)
    }

    /// Sets the final timestamp of a position. Returns whether it was undecided.
    pub fn decide(&mut self, position: u64, timestamp: LogicalTime) -> bool {
        let slot = self.slot(position);
        let is_held = position >= self.first() && position < self.end;
        let Some(entry) = self.entries[slot].as_mut().filter(|_| is_held) else { return false };
        //= spec/amcast.md#R9
        let is_new = entry.decided.is_none();
        if is_new {
            entry.decided = Some(timestamp);
        }
        self.advance_undecided();
        is_new
    }

    /// Changes the timestamp of an entry: only used by the seeded bug
    /// [`onepipe_base::mistake::Mistake::NewTimestamp`].
    pub fn restamp(&mut self, position: u64, timestamp: LogicalTime) {
        let slot = self.slot(position);
        if let Some(entry) = self.entries[slot].as_mut() {
            entry.timestamp = timestamp;
        }
    }

    /// Panics if the counts contradict the entries. Takes time linear in the positions held.
    pub fn check_invariants(&self) {
        self.check_counts();
        let capacity = self.entries.len() as u64;
        assert!(self.first() <= self.first_open, "incomplete positions are held");
        assert!(self.buffered_end <= self.first_open + capacity, "and none is overwritten");
        for position in self.first_open..self.end {
            let entry = self.get(position).expect("incomplete positions are held");
            let is_decided = entry.decided.is_some();
            assert!(is_decided || !entry.is_complete, "only a decided position is complete");
            assert!(is_decided || position >= self.first_undecided, "others are not");
            let len = usize::from(self.lengths[self.slot(position)]);
            assert!(len <= self.message_len_max, "a message fits its slot");
        }
        let until = self.buffered_end.max(self.end);
        let in_range = (self.end..until).filter(|position| self.buffered[self.slot(*position)]);
        let all = self.buffered.iter().filter(|is_buffered| **is_buffered).count();
        assert_eq!(in_range.count(), all, "buffered positions are behind the end");
    }

    /// Panics if the counts contradict each other.
    pub fn check_counts(&self) {
        assert!(self.first_open <= self.first_undecided, "a complete position is decided");
        assert!(self.first_undecided <= self.end, "a decided position is in the log");
        assert!(self.end - self.first_open <= self.entries.len() as u64, "the log is bounded");
    }

    /// Returns the latest timestamp of the incomplete positions, final or not.
    pub fn latest(&self) -> LogicalTime {
        let open = (self.first_open..self.end).filter_map(|position| self.get(position));
        let times = open.map(|entry| entry.timestamp.max(entry.decided.unwrap_or_default()));
        times.max().unwrap_or_default()
    }

    fn advance_undecided(&mut self) {
        while self.get(self.first_undecided).is_some_and(|entry| entry.decided.is_some()) {
            self.first_undecided += 1;
        }
    }

    /// Marks the next decided entry at or below `barrier` as complete, and returns its position.
    pub fn pop_complete(&mut self, barrier: LogicalTime) -> Option<u64> {
        let mut found = None;
        for position in self.first_open..self.end {
            let slot = self.slot(position);
            let Some(entry) = self.entries[slot].as_mut() else { break };
            if entry.timestamp > barrier {
                break;
            }
            if !entry.is_complete && entry.decided.is_some_and(|decided| decided <= barrier) {
                debug_assert!(entry.decided.is_some(), "only a decided position is complete");
                entry.is_complete = true;
                found = Some(position);
                break;
            }
        }
        while self.get(self.first_open).is_some_and(|entry| entry.is_complete) {
            self.first_open += 1;
        }
        found
    }

    /// Removes the last entry, unless all entries are decided.
    pub fn pop_undecided(&mut self) -> Option<Entry> {
        if self.end <= self.first_undecided {
            return None;
        }
        debug_assert!(self.first_open < self.end, "a complete position is not removed");
        self.end -= 1;
        let slot = self.slot(self.end);
        self.entries[slot].take()
    }
}
