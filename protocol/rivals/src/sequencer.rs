//! Sequencer: one node numbers all messages and forwards them.

use alloc::collections::VecDeque;

use bytes::Bytes;
use onepipe_base::ProcessId;

use crate::To;
use crate::context::OrderContext;
use crate::entry::{ALL, Entry};

/// Member: sends its messages to the sequencer, which returns them with a number.
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
            // The connection preserves the order of the numbers.
            context.deliver(entry);
        }
        is_valid
    }
}

/// The sequencer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sequencer {
    next: u64,
    /// Messages held back because a member's queue is full.
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

    /// Numbers and forwards held messages until a queue is full.
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
            // Messages to unknown members are dropped.
            if to.is_within(context.members) {
                let entry = Entry { number: self.next, ..held };
                self.next += 1;
                context.for_each(to, |context, to| context.send(to, entry.clone()));
            }
            context.complete_one(from);
        }
    }
}
