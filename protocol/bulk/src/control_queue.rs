//! Control frames that are due to a peer.

use alloc::collections::VecDeque;
use core::ops::Range;

use onepipe_wire::{BULK_FAILURE_LEN, BULK_HEADER_LEN, SHORT_HEADER_LEN};

use crate::config::FRAME_LEN_MIN;
use crate::object::{BlockId, HaveWord};

/// Maximum number of changed words of held blocks that are queued one by one; beyond it, the whole
/// list is sent again.
const HAVES_MAX: usize = 64;
/// Maximum number of failures per frame: fits the shortest frame allowed.
const FAILURES_MAX: usize = 48;
const _: () = assert!(
    SHORT_HEADER_LEN + BULK_HEADER_LEN + FAILURES_MAX * BULK_FAILURE_LEN <= FRAME_LEN_MIN,
    "the shortest frame holds as many failures"
);

/// Control frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// Some of the failures.
    Failures(Range<usize>),
    /// Progress and tokens.
    State,
    /// Request for a block.
    Want(BlockId),
    /// A changed word of held blocks.
    HaveChanged(HaveWord),
    /// All held blocks from a word on, as many as fit. [`ControlQueue::continue_from`] follows.
    HaveFrom(HaveWord),
}

/// What the next control frames to a peer report and request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ControlQueue {
    failures_sent: u32,
    is_state_due: bool,
    /// Object that the peer needs tokens for, as long as this member lacks blocks of it.
    tokens_due: Option<u32>,
    requests: VecDeque<BlockId>,
    /// Changed words of held blocks.
    haves: VecDeque<HaveWord>,
    /// Word from which on all held blocks are to be reported.
    have_cursor: Option<HaveWord>,
}

impl ControlQueue {
    pub fn queue_state(&mut self) {
        self.is_state_due = true;
    }

    /// Queues a state with tokens for an object; omitted if the object is complete by then.
    pub fn queue_tokens(&mut self, object: u32) {
        let other = self.tokens_due.replace(object);
        self.is_state_due |= other.is_some_and(|other| other != object);
    }

    /// Queues a request for a block.
    pub fn queue_request(&mut self, wanted: BlockId) {
        self.requests.push_back(wanted);
    }

    /// Queues a changed word of held blocks. `stable` is the first active object.
    pub fn queue_have(&mut self, changed: HaveWord, stable: u32) {
        if self.haves.back() == Some(&changed) {
            return;
        }
        if self.haves.len() < HAVES_MAX {
            self.haves.push_back(changed);
        } else {
            self.haves.clear();
            self.have_cursor = Some(HaveWord::first_of(stable));
        }
    }

    /// Queues all held blocks from a word on, unless an earlier word comes first.
    pub fn queue_haves_from(&mut self, from: HaveWord) {
        self.have_cursor = Some(self.have_cursor.map_or(from, |next| next.min(from)));
    }

    /// Queues all held blocks from a word on, if any, and no other held blocks.
    pub fn restart_haves(&mut self, from: Option<HaveWord>) {
        self.haves.clear();
        self.have_cursor = from;
    }

    /// Continues the report of all held blocks, after a frame that contains those before `next`.
    pub fn continue_from(&mut self, next: HaveWord) {
        debug_assert!(self.have_cursor.is_some_and(|cursor| cursor < next), "words are ascending");
        self.have_cursor = Some(next);
    }

    /// Handles the loss of failures from this one on.
    pub fn on_failures_lost(&mut self, first: u32) {
        self.failures_sent = self.failures_sent.min(first);
    }

    /// Drops what would notify a peer that has refused this member of the end of the group.
    pub fn on_refused(&mut self, failures: usize) {
        (self.failures_sent, self.is_state_due) = (failures as u32, false);
    }

    /// Returns whether the state and all `failures` were sent.
    pub fn has_sent(&self, failures: usize) -> bool {
        self.failures_sent as usize == failures && !self.is_state_due
    }

    /// Returns the next control frame, given the number of failures and the known active `objects`.
    /// `lacks` returns whether this member has memory for an object but lacks blocks of it.
    #[inline]
    pub fn pop(
        &mut self,
        failures: usize,
        objects: Range<u32>,
        lacks: impl FnOnce(u32) -> bool,
    ) -> Option<Control> {
        debug_assert!(objects.start <= objects.end, "a stable object is known");
        let first = self.failures_sent as usize;
        if first < failures {
            let until = failures.min(first + FAILURES_MAX);
            self.failures_sent = until as u32;
            return Some(Control::Failures(first..until));
        }
        let tokens_due = self.tokens_due.take();
        if core::mem::take(&mut self.is_state_due) || tokens_due.is_some_and(lacks) {
            return Some(Control::State);
        }
        if let Some(wanted) = self.requests.pop_front() {
            return Some(Control::Want(wanted));
        }
        while let Some(changed) = self.haves.pop_front() {
            if changed.object >= objects.start {
                return Some(Control::HaveChanged(changed));
            }
        }
        let from = self.have_cursor?.max(HaveWord::first_of(objects.start));
        if from.object >= objects.end {
            self.have_cursor = None;
            return None;
        }
        Some(Control::HaveFrom(from))
    }

    /// Drops everything but the count of failures, after the peer has failed.
    pub fn clear(&mut self) {
        self.requests.clear();
        self.haves.clear();
        (self.have_cursor, self.is_state_due, self.tokens_due) = (None, false, None);
    }

    /// Panics if more is queued or sent than there is.
    pub fn check_invariants(&self, failures: usize) {
        assert!(self.haves.len() <= HAVES_MAX, "changed words are bounded");
        assert!(self.failures_sent as usize <= failures, "a failure is sent after it is known");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_precede_state_and_reports() {
        let mut queue = ControlQueue::default();
        let word = |object, word| HaveWord { object, word };
        queue.queue_haves_from(word(2, 5));
        for changed in [word(1, 0), word(3, 1)] {
            queue.queue_have(changed, 2);
        }
        queue.queue_request(BlockId { object: 2, block: 9 });
        queue.queue_tokens(2);
        let expected = [
            Control::Failures(0..48),
            Control::Failures(48..50),
            Control::State,
            Control::Want(BlockId { object: 2, block: 9 }),
            Control::HaveChanged(word(3, 1)),
            Control::HaveFrom(word(2, 5)),
        ];
        for control in expected {
            assert_eq!(queue.pop(50, 2..4, |object| object == 2), Some(control));
        }
        assert!(queue.has_sent(50) && !queue.has_sent(51));
        queue.continue_from(word(4, 0));
        assert_eq!(queue.pop(50, 2..4, |_| true), None, "no object follows");
        queue.queue_tokens(3);
        assert_eq!(queue.pop(50, 2..4, |_| false), None, "object 3 is complete");
        queue.on_failures_lost(49);
        assert_eq!(queue.pop(50, 2..4, |_| false), Some(Control::Failures(49..50)));
        queue.check_invariants(50);
    }

    #[test]
    fn many_changed_words_become_one_report() {
        let mut queue = ControlQueue::default();
        for word in [0, 0].into_iter().chain(1..=HAVES_MAX as u32) {
            queue.queue_have(HaveWord { object: 7, word }, 6);
        }
        assert!(queue.haves.is_empty(), "the report contains the words");
        let first = Some(Control::HaveFrom(HaveWord::first_of(6)));
        assert_eq!(queue.pop(0, 6..8, |_| false), first);
    }
}
