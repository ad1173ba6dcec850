//! The rule by which messages are put in order, whichever it is.

use bytes::Bytes;
use onepipe_base::{Mono, ProcessId};

use crate::desk::Desk;
use crate::entry::{Entry, Kind};
use crate::lamport::Lamport;
use crate::primcast::Primcast;
use crate::sequencer::{Numbered, Sequencer};
use crate::token::Token;
use crate::{Config, Method, To};

/// One of the rules.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Order {
    Unordered,
    Token(Token),
    Lamport(Lamport),
    /// A member where there is a sequencer.
    Numbered(Numbered),
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
            Method::Sequencer => Self::Numbered(Numbered::new(ProcessId(config.members))),
            Method::Primcast { groups, group_members } => {
                Self::Primcast(Primcast::new(config.process, groups, group_members))
            }
        }
    }

    /// This member has something to say.
    pub(crate) fn send(&mut self, desk: &mut Desk, to: To, payload: Bytes) {
        match self {
            Self::Unordered => {
                let entry = Entry::message(desk.own, 0, payload);
                desk.for_each(to, |desk, to| match to == desk.own {
                    true => desk.deliver(entry.clone()),
                    false => desk.send(to, entry.clone()),
                });
            }
            Self::Token(token) => token.send(desk, to, payload),
            Self::Lamport(lamport) => lamport.send(desk, to, payload),
            Self::Numbered(numbered) => numbered.send(desk, to, payload),
            Self::Primcast(primcast) => primcast.send(desk, to, payload),
            // Refused by `Rival::send`.
            Self::Sequencer(_) => {}
        }
    }

    /// Something has come from `from`, in its order. Answers whether it made sense; the sequencer
    /// says itself when it is done with what does.
    pub(crate) fn take(&mut self, desk: &mut Desk, from: ProcessId, entry: Entry) -> bool {
        let makes_sense = match (&mut *self, entry.kind) {
            (Self::Sequencer(sequencer), Kind::Message) if entry.origin == from => {
                sequencer.take(desk, entry);
                return true;
            }
            (Self::Unordered, Kind::Message) if entry.origin == from => {
                desk.deliver(entry);
                true
            }
            (Self::Token(token), Kind::Message | Kind::Token) => token.take(desk, entry),
            (Self::Lamport(lamport), Kind::Message | Kind::Clock) => {
                lamport.take(desk, from, entry)
            }
            (Self::Primcast(primcast), _) => primcast.take(desk, from, entry),
            (Self::Numbered(numbered), Kind::Message) => numbered.take(desk, from, entry),
            _ => false,
        };
        desk.finish_one(from);
        makes_sense
    }

    /// Time has gone on, or something has happened.
    pub(crate) fn on_time(&mut self, desk: &mut Desk, now: Mono) {
        match self {
            Self::Lamport(lamport) => lamport.on_time(desk, now),
            Self::Token(token) if token.is_newborn(desk) => token.use_it(desk),
            Self::Sequencer(sequencer) => sequencer.number(desk),
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
