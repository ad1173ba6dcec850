//! Dispatches to the order method.

use bytes::Bytes;
use onepipe_base::{Mono, ProcessId};

use crate::context::OrderContext;
use crate::entry::{Entry, Kind};
use crate::lamport::Lamport;
use crate::primcast::Primcast;
use crate::sequencer::{Sequencer, SequencerClient};
use crate::token::Token;
use crate::{Config, Method, To};

/// State of the order method.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Order {
    Unordered,
    Token(Token),
    Lamport(Lamport),
    /// Member in a group with a sequencer.
    SequencerClient(SequencerClient),
    /// The sequencer.
    Sequencer(Sequencer),
    Primcast(Primcast),
}

impl Order {
    pub(crate) fn new(config: &Config) -> Self {
        match config.method {
            Method::Unordered => Self::Unordered,
            Method::Token => Self::Token(Token::new(config.process, config.members)),
            Method::Lamport { interval_ns } => {
                Self::Lamport(Lamport::new(config.process, config.members, interval_ns))
            }
            Method::Sequencer if config.process.0 == config.members => {
                Self::Sequencer(Sequencer::new())
            }
            Method::Sequencer => {
                Self::SequencerClient(SequencerClient::new(ProcessId(config.members)))
            }
            Method::Primcast { groups, group_members } => {
                Self::Primcast(Primcast::new(config.process, groups, group_members))
            }
        }
    }

    /// Sends a message of this member.
    pub(crate) fn send(&mut self, context: &mut OrderContext, to: To, payload: Bytes) {
        match self {
            Self::Unordered => {
                let entry = Entry::message(context.own, 0, payload);
                context.for_each(to, |context, to| match to == context.own {
                    true => context.deliver(entry.clone()),
                    false => context.send(to, entry.clone()),
                });
            }
            Self::Token(token) => token.send(context, to, payload),
            Self::Lamport(lamport) => lamport.send(context, to, payload),
            Self::SequencerClient(client) => client.send(context, to, payload),
            Self::Primcast(primcast) => primcast.send(context, to, payload),
            // [`Rival::send`](crate::Rival::send) refuses it.
            Self::Sequencer(_) => {}
        }
    }

    /// Handles an entry from `from`, in the order of its connection. Returns whether it was valid.
    /// All entries count as processed afterwards, except those that the sequencer holds back.
    pub(crate) fn receive(
        &mut self,
        context: &mut OrderContext,
        from: ProcessId,
        entry: Entry,
    ) -> bool {
        let is_valid = match (&mut *self, entry.kind) {
            (Self::Sequencer(sequencer), Kind::Message) if entry.origin == from => {
                sequencer.receive(context, entry);
                return true;
            }
            (Self::Unordered, Kind::Message) if entry.origin == from => {
                context.deliver(entry);
                true
            }
            (Self::Token(token), Kind::Message | Kind::Token) => token.receive(context, entry),
            (Self::Lamport(lamport), Kind::Message | Kind::Clock) => {
                lamport.receive(context, from, entry)
            }
            (Self::Primcast(primcast), _) => primcast.receive(context, from, entry),
            (Self::SequencerClient(client), Kind::Message) => client.receive(context, from, entry),
            _ => false,
        };
        context.complete_one(from);
        is_valid
    }

    /// Handles the passage of time, and any other change.
    pub(crate) fn handle_time(&mut self, context: &mut OrderContext, now: Mono) {
        match self {
            Self::Lamport(lamport) => lamport.handle_time(context, now),
            Self::Token(token) if token.is_initial(context) => token.use_token(context),
            Self::Sequencer(sequencer) => sequencer.assign_numbers(context),
            _ => {}
        }
    }

    /// Does what waits until all frames are sent that may be. Returns whether there are more now.
    pub(crate) fn on_all_sent(&mut self, context: &mut OrderContext) -> bool {
        match self {
            Self::Token(token) => token.pass(context),
            _ => false,
        }
    }

    /// Returns the number of own messages that wait in the method itself; for methods with
    /// acknowledged delivery, those that are not delivered yet.
    pub(crate) fn waiting(&self) -> usize {
        match self {
            Self::Token(token) => token.waiting(),
            Self::Primcast(primcast) => primcast.open(),
            _ => 0,
        }
    }

    /// Panics if the state of the method contradicts itself.
    pub(crate) fn check_invariants(&self) {
        match self {
            Self::Lamport(lamport) => lamport.check_invariants(),
            Self::Primcast(primcast) => primcast.check_invariants(),
            Self::Unordered | Self::Token(_) | Self::SequencerClient(_) | Self::Sequencer(_) => {}
        }
    }

    pub(crate) fn due(&self) -> Option<Mono> {
        match self {
            Self::Lamport(lamport) => lamport.due(),
            _ => None,
        }
    }
}
