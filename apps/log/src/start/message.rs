//! What replicas that start send to each other.

use alloc::vec::Vec;

use onepipe_base::ProcessId;
use onepipe_transaction::{Reader, Writer};

use super::Founders;
use crate::cut::{Cut, Statement};
use crate::founding::{Founding, OwnLog, StoredLog};
use crate::view::{REPLICAS_MAX, View};

const STARTS: u8 = 0x21;
const PROPOSES: u8 = 0x22;
const STORES: u8 = 0x23;
const FOUNDS: u8 = 0x24;
const SERVES: u8 = 0x25;

/// A message of a replica that starts, or to one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartMessage {
    /// The sender starts, in this session, and has a log or not. Best effort, to all replicas.
    Starts(u64, bool),
    /// The proposer has all sessions. Best effort, to all replicas.
    Proposes(Founders),
    /// What a founder has stored. Best effort, to the proposer.
    Stores(Founders, OwnLog),
    /// Where the log goes on. Reliable, to all founders.
    Founds(Founders, Founding),
    /// The log is open: to a replica that has started in this session. Best effort.
    Serves(u64),
}

impl StartMessage {
    /// Returns whether the message is sent by the reliable service.
    pub fn is_reliable(&self) -> bool {
        matches!(self, Self::Founds(..))
    }

    /// Returns the encoded message.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer(&mut bytes);
        match self {
            Self::Starts(session, has_log) => {
                writer.u8(STARTS);
                writer.u64(*session);
                writer.u8(u8::from(*has_log));
            }
            Self::Proposes(founders) => {
                writer.u8(PROPOSES);
                write_founders(founders, &mut writer);
            }
            Self::Stores(founders, stored) => {
                writer.u8(STORES);
                write_founders(founders, &mut writer);
                match stored {
                    OwnLog::Empty => writer.u8(0),
                    OwnLog::Stored(StoredLog { view, statement, has_state }) => {
                        writer.u8(1);
                        view.write(&mut writer);
                        statement.write(&mut writer);
                        writer.u8(u8::from(*has_state));
                    }
                    OwnLog::Replaced => writer.u8(2),
                }
            }
            Self::Founds(founders, Founding { view, cut }) => {
                writer.u8(FOUNDS);
                write_founders(founders, &mut writer);
                view.write(&mut writer);
                cut.write(&mut writer);
            }
            Self::Serves(session) => {
                writer.u8(SERVES);
                writer.u64(*session);
            }
        }
        bytes
    }

    /// Parses a message. Returns `None` if it is malformed, or not about a start.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let message = match reader.u8()? {
            STARTS => Self::Starts(reader.u64()?, parse_bool(&mut reader)?),
            PROPOSES => Self::Proposes(parse_founders(&mut reader)?),
            STORES => {
                let founders = parse_founders(&mut reader)?;
                let stored = match reader.u8()? {
                    0 => OwnLog::Empty,
                    1 => OwnLog::Stored(parse_stored(&mut reader)?),
                    2 => OwnLog::Replaced,
                    _ => return None,
                };
                Self::Stores(founders, stored)
            }
            FOUNDS => {
                let founders = parse_founders(&mut reader)?;
                let (view, cut) = (View::parse(&mut reader)?, Cut::parse(&mut reader)?);
                Self::Founds(founders, Founding { view, cut })
            }
            SERVES => Self::Serves(reader.u64()?),
            _ => return None,
        };
        reader.is_at_end().then_some(message)
    }
}

fn parse_stored(reader: &mut Reader<'_>) -> Option<StoredLog> {
    let (view, statement) = (View::parse(reader)?, Statement::parse(reader)?);
    Some(StoredLog { view, statement, has_state: parse_bool(reader)? })
}

fn parse_bool(reader: &mut Reader<'_>) -> Option<bool> {
    match reader.u8()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn write_founders(founders: &Founders, writer: &mut Writer<'_>) {
    writer.u16(founders.len() as u16);
    for (process, session) in founders {
        writer.u32(process.0);
        writer.u64(*session);
    }
}

fn parse_founders(reader: &mut Reader<'_>) -> Option<Founders> {
    let count = usize::from(reader.u16()?);
    let mut founders = Founders::new();
    for _ in 0..count {
        founders.insert(ProcessId(reader.u32()?), reader.u64()?);
    }
    (count <= REPLICAS_MAX && founders.len() == count).then_some(founders)
}
