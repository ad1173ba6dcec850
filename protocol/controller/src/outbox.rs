//! Frames to single nodes that wait to be sent.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use onepipe_base::{ProcessId, Psn};
use onepipe_wire::Opcode;

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Letter {
    pub opcode: Opcode,
    pub to: ProcessId,
    pub psn: Psn,
    pub payload: Vec<u8>,
}

/// A bounded queue. What it refuses is asked for again by whoever wants it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Outbox {
    letters: VecDeque<Letter>,
}

impl Outbox {
    /// Answers false when there are `max` already.
    pub(crate) fn push(&mut self, letter: Letter, max: usize) -> bool {
        let has_room = self.letters.len() < max;
        if has_room {
            self.letters.push_back(letter);
        }
        has_room
    }

    pub(crate) fn pop(&mut self) -> Option<Letter> {
        self.letters.pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.letters.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.letters.clear();
    }
}
