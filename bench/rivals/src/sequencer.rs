//! One node numbers everything and sends it to everybody.

use alloc::collections::VecDeque;

use bytes::Bytes;
use onepipe_base::ProcessId;

use crate::desk::Desk;
use crate::entry::{Entry, Kind};

/// A member: what it broadcasts goes to the sequencer, and comes back with a number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Numbered {
    sequencer: ProcessId,
}

impl Numbered {
    pub(crate) fn new(sequencer: ProcessId) -> Self {
        Self { sequencer }
    }

    pub(crate) fn broadcast(&mut self, desk: &mut Desk, payload: Bytes) {
        let entry = Entry { kind: Kind::Message, origin: desk.own, number: 0, payload };
        desk.send(self.sequencer, entry);
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

    pub(crate) fn take(&mut self, desk: &mut Desk, from: ProcessId, entry: Entry) -> bool {
        let is_own = entry.origin == from;
        if is_own {
            self.held.push_back(entry);
            self.number(desk);
        }
        is_own
    }

    /// Numbers what it has, as long as everybody keeps up.
    pub(crate) fn number(&mut self, desk: &mut Desk) {
        while !desk.is_full()
            && let Some(entry) = self.held.pop_front()
        {
            let entry = Entry { kind: Kind::Message, number: self.next, ..entry };
            self.next += 1;
            desk.send_to_others(&entry);
        }
    }
}
