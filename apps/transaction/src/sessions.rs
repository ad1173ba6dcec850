//! Which writes were executed, and with what results: a write that arrives twice is executed once.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use onepipe_base::{ProcessId, Timestamp};

use crate::codec::{Reader, Writer};

/// A write is refused if its number is this much or more above that of the oldest unfinished
/// transaction of its session: so a replica stores at most this many outcomes of a session.
pub const SESSION_WINDOW: u64 = 1 << 16;

/// The outcome of an executed write.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Outcome {
    pub at: Timestamp,
    pub results: Vec<u8>,
    /// Number of the record that must be durable before the reply.
    pub record: u64,
}

/// What is to be done with a write that was delivered. (The admission of a replica is
/// [`crate::RequestKind::Admit`].)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The write is new.
    Execute,
    /// The write was executed before.
    Executed,
    /// The client has had its reply.
    Finished,
    /// Its number is too far above that of the oldest unfinished one.
    Refuse,
}

/// The executed, unfinished writes of all sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Sessions {
    sessions: BTreeMap<(ProcessId, u64), Session>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Session {
    finished: u64,
    outcomes: BTreeMap<u64, Outcome>,
}

impl Sessions {
    /// Decides on write `number` of a client that has finished all its transactions below
    /// `finished`. The decision depends on the writes so far alone, which all replicas of a shard
    /// receive in one order: they decide alike.
    pub fn admit(&mut self, id: (ProcessId, u64), number: u64, finished: u64) -> Admission {
        let session = self.sessions.entry(id).or_default();
        if finished > session.finished {
            session.finished = finished;
            session.outcomes = session.outcomes.split_off(&finished);
        }
        if number < session.finished {
            Admission::Finished
        } else if session.outcomes.contains_key(&number) {
            Admission::Executed
        } else if number - session.finished >= SESSION_WINDOW {
            Admission::Refuse
        } else {
            Admission::Execute
        }
    }

    /// Notes the outcome of an admitted write.
    pub fn executed(&mut self, id: (ProcessId, u64), number: u64, outcome: Outcome) {
        self.sessions.entry(id).or_default().outcomes.insert(number, outcome);
    }

    /// Returns the outcome of a write, unless it was not executed or its client has finished it.
    pub fn outcome(&self, id: (ProcessId, u64), number: u64) -> Option<&Outcome> {
        self.sessions.get(&id)?.outcomes.get(&number)
    }

    /// Forgets the sessions of a process that has ended.
    pub fn end(&mut self, process: ProcessId) {
        self.sessions.retain(|(owner, _), _| *owner != process);
    }

    /// Appends the encoded sessions.
    pub fn write(&self, writer: &mut Writer<'_>) {
        writer.u32(self.sessions.len() as u32);
        for ((owner, session), Session { finished, outcomes }) in &self.sessions {
            writer.u32(owner.0);
            writer.u64(*session);
            writer.u64(*finished);
            writer.u32(outcomes.len() as u32);
            for (number, outcome) in outcomes {
                writer.u64(*number);
                writer.u64(outcome.at.as_ns());
                writer.bytes(&outcome.results);
            }
        }
    }

    /// Parses encoded sessions. Their outcomes are stored as soon as record `record` is. Returns
    /// `None` if they are malformed.
    pub fn parse(reader: &mut Reader<'_>, record: u64) -> Option<Self> {
        let mut sessions = BTreeMap::new();
        for _ in 0..reader.u32()? {
            let id = (ProcessId(reader.u32()?), reader.u64()?);
            let mut session = Session { finished: reader.u64()?, outcomes: BTreeMap::new() };
            for _ in 0..reader.u32()? {
                let (number, at) = (reader.u64()?, Timestamp::from_ns(reader.u64()?));
                let results = reader.bytes()?.to_vec();
                session.outcomes.insert(number, Outcome { at, results, record });
            }
            sessions.insert(id, session);
        }
        Some(Self { sessions })
    }
}
