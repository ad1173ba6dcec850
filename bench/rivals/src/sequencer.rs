//! One node numbers everything and sends it on.

use alloc::collections::VecDeque;

use bytes::Bytes;
use onepipe_base::ProcessId;

use crate::To;
use crate::context::OrderContext;
use crate::entry::{ALL, Entry};

/// A member: what it says goes to the sequencer, and comes back with a number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SequencerClient {
    sequencer: ProcessId,
}

impl SequencerClient {
    pub(crate) fn new(sequencer: ProcessId) -> Self {
        Self { sequencer }
    }

    pub(crate) fn send(&mut self, context: &mut OrderContext, to: To, payload: Bytes) {
        let number = match to {
            To::One(to) => to.0.into(),
            To::All | To::Groups(_) => ALL,
        };
        context.send(self.sequencer, Entry::message(context.own, number, payload));
    }

    pub(crate) fn receive(
        &mut self,
        context: &mut OrderContext,
        from: ProcessId,
        entry: Entry,
    ) -> bool {
        let is_valid = from == self.sequencer;
        if is_valid {
            // The connection keeps the order of the numbers.
            context.deliver(entry);
        }
        is_valid
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

    pub(crate) fn receive(&mut self, context: &mut OrderContext, entry: Entry) {
        self.held.push_back(entry);
        self.assign_numbers(context);
    }

    /// Numbers what it has, as long as everybody keeps up.
    pub(crate) fn assign_numbers(&mut self, context: &mut OrderContext) {
        while !self.held.is_empty()
            && !context.is_full()
            && let Some(held) = self.held.pop_front()
        {
            let from = held.origin;
            let to = match u32::try_from(held.number) {
                Ok(to) => To::One(ProcessId(to)),
                Err(_) => To::All,
            };
            // Whom nobody knows is sent nothing.
            if to.is_within(context.members) {
                let entry = Entry { number: self.next, ..held };
                self.next += 1;
                context.for_each(to, |context, to| context.send(to, entry.clone()));
            }
            context.complete_one(from);
        }
    }
}
