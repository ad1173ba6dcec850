//! The messages between clients and servers, and between the replicas of a shard.

use alloc::vec::Vec;

use onepipe_base::ProcessId;
use onepipe_transaction::{Reader, Writer};

use crate::locks::Owner;
use crate::protocol::Action;

/// First byte of each kind of message. Requests and replies have those of `onepipe_transaction`, so
/// that the messages of all protocols are counted alike.
const REQUEST: u8 = 1;
const REPLY: u8 = 17;
const APPEND: u8 = 33;
const ACK: u8 = 34;

/// A message to be sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OutgoingMessage {
    /// The receiver.
    pub to: ProcessId,
    /// The encoded message.
    pub payload: Vec<u8>,
}

/// Returns whether a message to a process is a reply, for its [`Client`](crate::Client), by the
/// first byte. All other messages are for its [`Server`](crate::Server).
pub fn is_reply(payload: &[u8]) -> bool {
    payload.first() == Some(&REPLY)
}

/// The position of a request among those of a transaction: the attempt, and the round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Step {
    pub attempt: u32,
    pub round: u8,
}

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request<'a> {
    pub session: u64,
    pub number: u64,
    /// All transactions of the session below this number have ended.
    pub finished: u64,
    pub step: Step,
    pub action: Action,
    /// The part of the server's shard; `None` if the server has it from an earlier round.
    pub part: Option<&'a [u8]>,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    /// The action was executed, with these results.
    Done(Vec<u8>),
    /// Another transaction holds a lock, or has changed a version.
    Conflict,
}

/// A reply of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub session: u64,
    pub number: u64,
    pub step: Step,
    pub shard: u16,
    pub outcome: Outcome,
}

/// What a primary replicates.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Change {
    /// A transaction is prepared with this part.
    Prepare(Vec<u8>),
    /// A transaction is executed. `None`: with the part of its preparation.
    Commit(Option<Vec<u8>>),
    /// A prepared transaction is not executed.
    Abort,
}

/// An entry of a shard's log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    /// Consecutive, from 1.
    pub index: u64,
    pub owner: Owner,
    pub change: Change,
}

/// Which entries a backup has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ack {
    /// The backup has all entries up to this index.
    pub applied: u64,
    /// Index of the first entry that it has after a gap; `u64::MAX` if there is none.
    pub beyond: u64,
}

/// A message to a server: any but a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ToServer<'a> {
    Request(Request<'a>),
    Append(Entry),
    Ack(Ack),
}

fn write_step(writer: &mut Writer<'_>, step: Step) {
    writer.u32(step.attempt);
    writer.u8(step.round);
}

fn read_step(reader: &mut Reader<'_>) -> Option<Step> {
    Some(Step { attempt: reader.u32()?, round: reader.u8()? })
}

fn write_optional(writer: &mut Writer<'_>, bytes: Option<&[u8]>) {
    writer.u8(u8::from(bytes.is_some()));
    if let Some(bytes) = bytes {
        writer.bytes(bytes);
    }
}

fn read_optional<'a>(reader: &mut Reader<'a>) -> Option<Option<&'a [u8]>> {
    match reader.u8()? {
        0 => Some(None),
        1 => reader.bytes().map(Some),
        _ => None,
    }
}

impl Request<'_> {
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer(&mut bytes);
        writer.u8(REQUEST);
        writer.u64(self.session);
        writer.u64(self.number);
        writer.u64(self.finished);
        write_step(&mut writer, self.step);
        writer.u8(self.action as u8);
        write_optional(&mut writer, self.part);
        bytes
    }
}

impl Reply {
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer(&mut bytes);
        writer.u8(REPLY);
        writer.u64(self.session);
        writer.u64(self.number);
        write_step(&mut writer, self.step);
        writer.u16(self.shard);
        match &self.outcome {
            Outcome::Done(results) => write_optional(&mut writer, Some(results)),
            Outcome::Conflict => write_optional(&mut writer, None),
        }
        bytes
    }

    /// Parses a reply. Returns `None` if it is malformed.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let (REPLY, session, number) = (reader.u8()?, reader.u64()?, reader.u64()?) else {
            return None;
        };
        let (step, shard) = (read_step(&mut reader)?, reader.u16()?);
        let outcome = match read_optional(&mut reader)? {
            Some(results) => Outcome::Done(results.to_vec()),
            None => Outcome::Conflict,
        };
        reader.is_at_end().then_some(Self { session, number, step, shard, outcome })
    }
}

impl Entry {
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer(&mut bytes);
        writer.u8(APPEND);
        writer.u64(self.index);
        writer.u32(self.owner.client.0);
        writer.u64(self.owner.session);
        writer.u64(self.owner.number);
        let (kind, part) = match &self.change {
            Change::Prepare(part) => (0, Some(part)),
            Change::Commit(part) => (1, part.as_ref()),
            Change::Abort => (2, None),
        };
        writer.u8(kind);
        write_optional(&mut writer, part.map(Vec::as_slice));
        bytes
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (index, client) = (reader.u64()?, ProcessId(reader.u32()?));
        let owner = Owner { client, session: reader.u64()?, number: reader.u64()? };
        let (kind, part) = (reader.u8()?, read_optional(reader)?.map(<[u8]>::to_vec));
        let change = match (kind, part) {
            (0, Some(part)) => Change::Prepare(part),
            (1, part) => Change::Commit(part),
            (2, None) => Change::Abort,
            _ => return None,
        };
        (index > 0).then_some(Self { index, owner, change })
    }
}

impl Ack {
    pub fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer(&mut bytes);
        writer.u8(ACK);
        writer.u64(self.applied);
        writer.u64(self.beyond);
        bytes
    }
}

impl<'a> ToServer<'a> {
    /// Parses a message to a server. Returns `None` if it is malformed.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let message = match reader.u8()? {
            REQUEST => {
                let (session, number) = (reader.u64()?, reader.u64()?);
                let (finished, step) = (reader.u64()?, read_step(&mut reader)?);
                let action = Action::from_byte(reader.u8()?)?;
                let part = read_optional(&mut reader)?;
                Self::Request(Request { session, number, finished, step, action, part })
            }
            APPEND => Self::Append(Entry::read(&mut reader)?),
            ACK => Self::Ack(Ack { applied: reader.u64()?, beyond: reader.u64()? }),
            _ => return None,
        };
        reader.is_at_end().then_some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages() -> Vec<Vec<u8>> {
        let step = Step { attempt: 3, round: 2 };
        let request = |action, part| {
            Request { session: 7, number: 9, finished: 8, step, action, part }.to_bytes()
        };
        let owner = Owner { client: ProcessId(5), session: 7, number: 9 };
        let entry = |change| Entry { index: 4, owner, change }.to_bytes();
        [
            request(Action::Read, Some(b"part")),
            request(Action::Abort, None),
            entry(Change::Prepare(b"part".to_vec())),
            entry(Change::Commit(None)),
            entry(Change::Abort),
            Ack { applied: 3, beyond: u64::MAX }.to_bytes(),
        ]
        .to_vec()
    }

    #[test]
    fn messages_survive_a_round_trip_and_fragments_are_refused() {
        for bytes in messages() {
            let again = match ToServer::parse(&bytes).expect("well-formed") {
                ToServer::Request(request) => request.to_bytes(),
                ToServer::Append(entry) => entry.to_bytes(),
                ToServer::Ack(ack) => ack.to_bytes(),
            };
            assert_eq!(again, bytes);
            assert!(!is_reply(&bytes));
            for len in 0..bytes.len() {
                assert_eq!(ToServer::parse(&bytes[..len]), None);
            }
        }
        let step = Step { attempt: 3, round: 2 };
        for outcome in [Outcome::Conflict, Outcome::Done(b"results".to_vec())] {
            let reply = Reply { session: 7, number: 9, step, shard: 1, outcome };
            let bytes = reply.to_bytes();
            assert!(is_reply(&bytes) && Reply::parse(&bytes) == Some(reply));
            assert!((0..bytes.len()).all(|len| Reply::parse(&bytes[..len]).is_none()));
        }
    }
}
