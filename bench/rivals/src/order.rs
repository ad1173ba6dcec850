//! The rule by which messages are put in order, whichever it is.

use bytes::Bytes;
use onepipe_base::{Mono, ProcessId};

use crate::context::OrderContext;
use crate::entry::{Entry, Kind};
use crate::lamport::Lamport;
use crate::primcast::Primcast;
use crate::sequencer::{Sequencer, SequencerClient};
use crate::token::Token;
use crate::{Config, Method, To};

/// One of the rules.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Order {
    Unordered,
    Token(Token),
    Lamport(Lamport),
    /// A member where there is a sequencer.
    SequencerClient(SequencerClient),
    /// The sequencer itself.
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

    /// This member has something to say.
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
            // Refused by `Rival::send`.
            Self::Sequencer(_) => {}
        }
    }

    /// Something has come from `from`, in its order. Answers whether it made sense; the sequencer
    /// says itself when it is done with what does.
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

    /// Time has gone on, or something has happened.
    pub(crate) fn handle_time(&mut self, context: &mut OrderContext, now: Mono) {
        match self {
            Self::Lamport(lamport) => lamport.handle_time(context, now),
            Self::Token(token) if token.is_initial(context) => token.use_token(context),
            Self::Sequencer(sequencer) => sequencer.assign_numbers(context),
            _ => {}
        }
    }

    /// What waits here, and not at a connection; where those who deliver messages acknowledge them,
    /// what they have not.
    pub(crate) fn waiting(&self) -> usize {
        match self {
            Self::Token(token) => token.waiting(),
            Self::Primcast(primcast) => primcast.open(),
            _ => 0,
        }
    }

    pub(crate) fn due(&self) -> Option<Mono> {
        match self {
            Self::Lamport(lamport) => lamport.due(),
            _ => None,
        }
    }
}
