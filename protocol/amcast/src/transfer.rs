//! Transfer of another member's log, in order. The received entries are staged: the own log stays
//! valid, and may be needed by others, until the transfer is complete.

use alloc::vec;
use alloc::vec::Vec;

use crate::log::Entry;

//= spec/amcast.md#R24
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LogTransfer {
    entries: Vec<Option<Entry>>,
    lengths: Vec<u16>,
    messages: Vec<u8>,
    message_len_max: usize,
    /// Index of the member that sends its log; `None` if no transfer is active.
    pub from: Option<usize>,
    base: u64,
    next: u64,
    until: u64,
}

impl LogTransfer {
    pub fn new(positions: usize, message_len_max: usize) -> Self {
        Self {
            entries: vec![None; positions],
            lengths: vec![0; positions],
            messages: vec![0; positions * message_len_max],
            message_len_max,
            from: None,
            base: 0,
            next: 0,
            until: 0,
        }
    }

    /// Starts a transfer of positions `base..until` from member `from`. Returns `false` if they do
    /// not fit.
    pub fn start(&mut self, from: usize, base: u64, until: u64) -> bool {
        let fits = until.saturating_sub(base) <= self.entries.len() as u64;
        self.from = fits.then_some(from);
        (self.base, self.next, self.until) = (base, base, until.max(base));
        self.check_invariants();
        fits
    }

    pub fn cancel(&mut self) {
        self.from = None;
    }

    /// Returns the first position that is missing.
    pub fn next(&self) -> u64 {
        self.next
    }

    pub fn until(&self) -> u64 {
        self.until
    }

    pub fn is_complete(&self) -> bool {
        self.from.is_some() && self.next == self.until
    }

    /// Adds an entry. Returns whether it was the next position.
    pub fn push(&mut self, position: u64, entry: Entry, message: &[u8]) -> bool {
        if position != self.next || position >= self.until {
            return false;
        }
        debug_assert!(self.base <= position, "a transfer goes forward");
        let slot = (position - self.base) as usize;
        let message = &message[..message.len().min(self.message_len_max)];
        let begin = slot * self.message_len_max;
        self.messages[begin..begin + message.len()].copy_from_slice(message);
        self.lengths[slot] = message.len() as u16;
        self.entries[slot] = Some(entry);
        self.next += 1;
        true
    }

    /// Panics if the range of the transfer contradicts itself.
    pub fn check_invariants(&self) {
        assert!(self.base <= self.next, "a transfer begins at its base");
        assert!(self.next <= self.until, "and ends where it was asked to");
        let fits = self.until - self.base <= self.entries.len() as u64;
        assert!(fits || self.from.is_none(), "what does not fit is not transferred");
        assert_eq!(self.lengths.len(), self.entries.len(), "each entry has a length");
    }

    pub fn get(&self, position: u64) -> Option<(Entry, &[u8])> {
        let slot = position.checked_sub(self.base).filter(|_| position < self.next)? as usize;
        let begin = slot * self.message_len_max;
        let message = &self.messages[begin..begin + usize::from(self.lengths[slot])];
        Some((self.entries[slot]?, message))
    }
}
