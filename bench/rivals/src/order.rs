//! The rule by which messages are put in order, whichever it is.

use bytes::Bytes;
use onepipe_base::{Mono, ProcessId};

use crate::desk::Desk;
use crate::entry::{Entry, Kind};
use crate::lamport::Lamport;
use crate::sequencer::{Numbered, Sequencer};
use crate::token::Token;
use crate::{Config, Method};

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
        }
    }

    /// This member broadcasts.
    pub(crate) fn broadcast(&mut self, desk: &mut Desk, payload: Bytes) {
        match self {
            Self::Unordered => {
                let entry = Entry { kind: Kind::Message, origin: desk.own, number: 0, payload };
                desk.send_to_others(&entry);
                desk.deliver(entry);
            }
            Self::Token(token) => token.broadcast(desk, payload),
            Self::Lamport(lamport) => lamport.broadcast(desk, payload),
            Self::Numbered(numbered) => numbered.broadcast(desk, payload),
            // Refused by `Rival::broadcast`.
            Self::Sequencer(_) => {}
        }
    }

    /// Something has come from `from`, in its order. Answers whether it made sense.
    pub(crate) fn take(&mut self, desk: &mut Desk, from: ProcessId, entry: Entry) -> bool {
        match (self, entry.kind) {
            (Self::Unordered, Kind::Message) if entry.origin == from => desk.deliver(entry),
            (Self::Token(token), Kind::Message | Kind::Token) => token.take(desk, entry),
            (Self::Lamport(lamport), Kind::Message | Kind::Clock) => {
                return lamport.take(desk, from, entry);
            }
            (Self::Numbered(numbered), Kind::Message) => return numbered.take(desk, from, entry),
            (Self::Sequencer(sequencer), Kind::Message) => {
                return sequencer.take(desk, from, entry);
            }
            _ => return false,
        }
        true
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

    pub(crate) fn due(&self) -> Option<Mono> {
        match self {
            Self::Lamport(lamport) => lamport.due(),
            _ => None,
        }
    }
}
