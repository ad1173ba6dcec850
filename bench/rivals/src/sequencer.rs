//! One node numbers everything and sends it on.

use alloc::collections::VecDeque;

use bytes::Bytes;
use onepipe_base::ProcessId;

use crate::To;
use crate::desk::Desk;
use crate::entry::{EVERYBODY, Entry};

/// A member: what it says goes to the sequencer, and comes back with a number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Numbered {
    sequencer: ProcessId,
}

impl Numbered {
    pub(crate) fn new(sequencer: ProcessId) -> Self {
        Self { sequencer }
    }

    pub(crate) fn send(&mut self, desk: &mut Desk, to: To, payload: Bytes) {
        let number = match to {
            To::One(to) => to.0.into(),
            To::Everybody | To::Groups(_) => EVERYBODY,
        };
        desk.send(self.sequencer, Entry::message(desk.own, number, payload));
    }

    pub(crate) fn take(&mut self, desk: &mut Desk, from: ProcessId, entry: Entry) -> bool {
        let is_numbered = from == self.sequencer;
        if is_numbered {
            // The connection keeps the order of the numbers.
            desk.deliver(entry);
        }
        is_numbered
    }
}

/// The node that numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sequencer {
    next: u64,
    /// Messages that wait because some member does not keep up.
    held: VecDeque<Entry>,
}

impl Sequencer {
    pub(crate) fn new() -> Self {
        Self { next: 0, held: VecDeque::new() }
    }

    pub(crate) fn take(&mut self, desk: &mut Desk, entry: Entry) {
        self.held.push_back(entry);
        self.number(desk);
    }

    /// Numbers what it has, as long as everybody keeps up.
    pub(crate) fn number(&mut self, desk: &mut Desk) {
        while !self.held.is_empty()
            && !desk.is_full()
            && let Some(held) = self.held.pop_front()
        {
            let from = held.origin;
            let to = match u32::try_from(held.number) {
                Ok(to) => To::One(ProcessId(to)),
                Err(_) => To::Everybody,
            };
            // Whom nobody knows is sent nothing.
            if to.is_within(desk.members) {
                let entry = Entry { number: self.next, ..held };
                self.next += 1;
                desk.for_each(to, |desk, to| desk.send(to, entry.clone()));
            }
            desk.finish_one(from);
        }
    }
}
