//! The messages between replicas that start.

use alloc::vec::Vec;

use onepipe_base::ProcessId;

use crate::codec::{Reader, Writer};
use crate::recovery::{Position, Record};
use crate::request::START;
use crate::roles::LogSummary;

const STARTS: u8 = 0;
const PROPOSES: u8 = 1;
const SERVES: u8 = 2;
const STATES: u8 = 3;
const WANTS: u8 = 4;
const HOLDS: u8 = 5;

/// The founders of a store, with their sessions, in ascending order of their ids. The first one is
/// the proposer.
pub type Founders = Vec<(ProcessId, u64)>;

/// A message of a replica that starts, or an answer to one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StartMessage {
    /// The sender starts, and does not know whether the store is open.
    Starts,
    /// Proposes a round to a process that starts in the session `to`.
    Proposes { to: u64, founders: Founders },
    /// The store is open, and has started with `founders`. Answers a process that starts in the
    /// session `to`.
    Serves { to: u64, founders: Founders },
    /// What the log of the sender holds, and whether the sender is ready for the opening.
    States { round: u64, summary: LogSummary, is_ready: bool },
    /// Asks a founder for the records of its log after a position.
    Wants { round: u64, after: Option<Position> },
    /// The sender's valid records after `after` and up to `until` that have a part for the shard of
    /// the receiver. `until` is `None` if these are the last ones.
    Holds { round: u64, after: Option<Position>, until: Option<Position>, records: Vec<Record> },
}

impl StartMessage {
    /// Returns the encoded message. `session` is that of the sender.
    pub fn to_bytes(&self, session: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer(&mut bytes);
        writer.u8(START);
        writer.u64(session);
        match self {
            Self::Starts => writer.u8(STARTS),
            Self::Proposes { to, founders } => {
                writer.u8(PROPOSES);
                writer.u64(*to);
                write_founders(&mut writer, founders);
            }
            Self::Serves { to, founders } => {
                writer.u8(SERVES);
                writer.u64(*to);
                write_founders(&mut writer, founders);
            }
            Self::States { round, summary, is_ready } => {
                writer.u8(STATES);
                writer.u64(*round);
                summary.write(&mut writer);
                writer.bool(*is_ready);
            }
            Self::Wants { round, after } => {
                writer.u8(WANTS);
                writer.u64(*round);
                writer.position(*after);
            }
            Self::Holds { round, after, until, records } => {
                writer.u8(HOLDS);
                writer.u64(*round);
                writer.position(*after);
                writer.position(*until);
                writer.u32(records.len() as u32);
                for record in records {
                    let mut bytes = Vec::new();
                    record.write(&mut bytes);
                    writer.bytes(&bytes);
                }
            }
        }
        bytes
    }

    /// Parses a message. Returns the session of the sender, and the message; `None` if the bytes
    /// are malformed.
    pub fn parse(bytes: &[u8]) -> Option<(u64, Self)> {
        let mut reader = Reader(bytes);
        if reader.u8()? != START {
            return None;
        }
        let session = reader.u64()?;
        let message = match reader.u8()? {
            STARTS => Self::Starts,
            PROPOSES => {
                Self::Proposes { to: reader.u64()?, founders: parse_founders(&mut reader)? }
            }
            SERVES => Self::Serves { to: reader.u64()?, founders: parse_founders(&mut reader)? },
            STATES => {
                let (round, summary) = (reader.u64()?, LogSummary::parse(&mut reader)?);
                Self::States { round, summary, is_ready: reader.bool()? }
            }
            WANTS => Self::Wants { round: reader.u64()?, after: reader.position()? },
            HOLDS => {
                let (round, after) = (reader.u64()?, reader.position()?);
                let until = reader.position()?;
                let mut records = Vec::new();
                for _ in 0..reader.u32()? {
                    // The receiver numbers the records itself.
                    records.push(Record::parse(0, reader.bytes()?)?);
                }
                Self::Holds { round, after, until, records }
            }
            _ => return None,
        };
        reader.is_at_end().then_some((session, message))
    }
}

fn write_founders(writer: &mut Writer<'_>, founders: &Founders) {
    writer.u32(founders.len() as u32);
    for (process, session) in founders {
        writer.u32(process.0);
        writer.u64(*session);
    }
}

fn parse_founders(reader: &mut Reader<'_>) -> Option<Founders> {
    let mut founders = Vec::new();
    for _ in 0..reader.u32()? {
        founders.push((ProcessId(reader.u32()?), reader.u64()?));
    }
    Some(founders)
}
