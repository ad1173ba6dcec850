//! What replicas answer to clients.

use alloc::vec::Vec;

use onepipe_base::Timestamp;

use crate::codec::{Reader, Writer};

/// First byte of a reply. Requests begin with other bytes.
const WRITTEN: u8 = 17;
const READ: u8 = 18;
const REFUSED: u8 = 19;
const OUTDATED: u8 = 20;
const ABSENT: u8 = 21;
const STRANDED: u8 = 22;

/// The reply of one replica to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The client's session.
    pub session: u64,
    /// Number of the transaction in the session.
    pub number: u64,
    /// Number of the attempt that is answered. 0 in [`Answer::Written`] and [`Answer::Refused`],
    /// which are the outcome of all attempts at a write.
    pub attempt: u32,
    /// The shard of the replica.
    pub shard: u16,
    /// What the replica answers.
    pub answer: Answer<'a>,
}

/// What a replica answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// The write was executed at this timestamp.
    Written {
        /// Timestamp of the execution.
        at: Timestamp,
        /// The results of the replica's part.
        results: &'a [u8],
    },
    /// The results of a read, which are exact at each timestamp from `from` on, and before `until`.
    Read {
        /// Least timestamp at which the read may take place.
        from: Timestamp,
        /// First timestamp at which the results may be different.
        until: Timestamp,
        /// The results of the replica's part.
        results: &'a [u8],
    },
    /// The write was not executed: its number is [`SESSION_WINDOW`](crate::SESSION_WINDOW) or more
    /// above that of the client's oldest unfinished transaction.
    Refused,
    /// The write was sent with an older view than the last one: no replica of any shard has
    /// executed it. The encoded [`Members`](crate::Members) are those of the replica.
    Outdated(&'a [u8]),
    /// The replica has not caught up: at this timestamp it was not a member. It has not executed
    /// the request, and is no receiver of writes until it is admitted.
    Absent(Timestamp),
    /// The replica was admitted, and cannot catch up, as no other replica of its shard answers.
    /// What it has received may be executed later.
    Stranded,
}

impl<'a> Reply<'a> {
    /// Appends the encoded reply.
    pub fn write(&self, bytes: &mut Vec<u8>) {
        let mut writer = Writer(bytes);
        writer.u8(match self.answer {
            Answer::Written { .. } => WRITTEN,
            Answer::Read { .. } => READ,
            Answer::Refused => REFUSED,
            Answer::Outdated(_) => OUTDATED,
            Answer::Absent(_) => ABSENT,
            Answer::Stranded => STRANDED,
        });
        writer.u64(self.session);
        writer.u64(self.number);
        writer.u32(self.attempt);
        writer.u16(self.shard);
        match self.answer {
            Answer::Written { at, results } => {
                writer.u64(at.as_ns());
                writer.bytes(results);
            }
            Answer::Read { from, until, results } => {
                writer.u64(from.as_ns());
                writer.u64(until.as_ns());
                writer.bytes(results);
            }
            Answer::Refused | Answer::Stranded => {}
            Answer::Outdated(members) => writer.bytes(members),
            Answer::Absent(at) => writer.u64(at.as_ns()),
        }
    }

    /// Returns whether a message is a reply, for the client of a process, by its first byte.
    pub fn is_reply(payload: &[u8]) -> bool {
        matches!(payload.first(), Some(&(WRITTEN..=STRANDED)))
    }

    /// Parses a reply. Returns `None` if it is malformed.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let code = reader.u8()?;
        let (session, number, attempt) = (reader.u64()?, reader.u64()?, reader.u32()?);
        let shard = reader.u16()?;
        let answer = match code {
            WRITTEN => {
                Answer::Written { at: Timestamp::from_ns(reader.u64()?), results: reader.bytes()? }
            }
            READ => Answer::Read {
                from: Timestamp::from_ns(reader.u64()?),
                until: Timestamp::from_ns(reader.u64()?),
                results: reader.bytes()?,
            },
            REFUSED => Answer::Refused,
            OUTDATED => Answer::Outdated(reader.bytes()?),
            STRANDED => Answer::Stranded,
            ABSENT => Answer::Absent(Timestamp::from_ns(reader.u64()?)),
            _ => return None,
        };
        reader.is_at_end().then_some(Self { session, number, attempt, shard, answer })
    }
}
