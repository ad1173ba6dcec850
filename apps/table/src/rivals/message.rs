//! Messages to and from leaders.

use alloc::vec::Vec;

use onepipe_transaction::{Reader, Writer};

const INSERT: u8 = 0xb1;
const INSERTED: u8 = 0xb2;
const REPLICATE: u8 = 0xb3;
const REPLICATED: u8 = 0xb4;

/// A message to or from a leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Asks a leader to insert a key. Of the client's insertions, all below `finished` have ended.
    Insert { session: u64, number: u64, finished: u64, shard: u16, key: u64, value: Vec<u8> },
    /// The reply to a client: whether the key was inserted, or why it was not.
    Inserted { session: u64, number: u64, outcome: Insertion },
    /// What followers write, as offsets and bytes, in the order of the numbers.
    Replicate { number: u64, shard: u16, writes: Vec<(u64, Vec<u8>)> },
    /// A follower has written everything up to this number.
    Replicated { number: u64 },
}

/// What a leader has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Insertion {
    Done,
    Exists,
    Full,
}

/// Returns whether a payload is a message to or from a leader, from its first byte.
pub fn is_leader_message(payload: &[u8]) -> bool {
    matches!(payload.first(), Some(&(INSERT | INSERTED | REPLICATE | REPLICATED)))
}

impl Message {
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer(&mut bytes);
        match self {
            Self::Insert { session, number, finished, shard, key, value } => {
                writer.u8(INSERT);
                writer.u64(*session);
                writer.u64(*number);
                writer.u64(*finished);
                writer.u16(*shard);
                writer.u64(*key);
                writer.bytes(value);
            }
            Self::Inserted { session, number, outcome } => {
                writer.u8(INSERTED);
                writer.u64(*session);
                writer.u64(*number);
                writer.u8(*outcome as u8);
            }
            Self::Replicate { number, shard, writes } => {
                writer.u8(REPLICATE);
                writer.u64(*number);
                writer.u16(*shard);
                writer.u16(writes.len() as u16);
                for (offset, bytes) in writes {
                    writer.u64(*offset);
                    writer.bytes(bytes);
                }
            }
            Self::Replicated { number } => {
                writer.u8(REPLICATED);
                writer.u64(*number);
            }
        }
        bytes
    }

    /// Parses a message. Returns `None` if it is malformed.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let message = match reader.u8()? {
            INSERT => {
                let (session, number, finished) = (reader.u64()?, reader.u64()?, reader.u64()?);
                let (shard, key) = (reader.u16()?, reader.u64()?);
                let value = reader.bytes()?.to_vec();
                Self::Insert { session, number, finished, shard, key, value }
            }
            INSERTED => {
                let (session, number) = (reader.u64()?, reader.u64()?);
                let outcome = match reader.u8()? {
                    0 => Insertion::Done,
                    1 => Insertion::Exists,
                    2 => Insertion::Full,
                    _ => return None,
                };
                Self::Inserted { session, number, outcome }
            }
            REPLICATE => {
                let (number, shard, mut writes) = (reader.u64()?, reader.u16()?, Vec::new());
                for _ in 0..reader.u16()? {
                    writes.push((reader.u64()?, reader.bytes()?.to_vec()));
                }
                Self::Replicate { number, shard, writes }
            }
            REPLICATED => Self::Replicated { number: reader.u64()? },
            _ => return None,
        };
        reader.is_at_end().then_some(message)
    }
}
