//! What clients send to replicas.

use alloc::vec::Vec;

use onepipe_base::Timestamp;

use crate::codec::{Reader, Writer};

/// Maximum number of parts in a request: as many as there are shards.
pub const PARTS_MAX: usize = 1 << 14;

/// First byte of a request. Replies begin with other bytes.
const WRITE: u8 = 1;
const STRICT_READ: u8 = 2;
const SNAPSHOT_READ: u8 = 3;
const ASK: u8 = 4;

/// How a request is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// Executed at its timestamp. Sent in one reliable scattering to all replicas of all shards
    /// concerned.
    Write,
    /// A read, answered once the commit barrier has passed its own timestamp. Sent by best effort
    /// to one replica of each shard.
    StrictRead,
    /// A read, answered once the commit barrier is at or above this timestamp. Sent by best effort
    /// to one replica of each shard.
    SnapshotRead(Timestamp),
    /// Asks for the reply to a write that was sent before. Sent by best effort.
    Ask,
}

/// A request of a client to one replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// How it is executed.
    pub kind: RequestKind,
    /// The client's session. A process that restarts, or has several clients, has several.
    pub session: u64,
    /// Number of the transaction in the session.
    pub number: u64,
    /// Number of the attempt, which distinguishes the replies to repeated reads.
    pub attempt: u32,
    /// All transactions of the session below this number are finished: nobody will ask for their
    /// replies.
    pub finished: u64,
    /// The part of each shard, in ascending order of the shards. Empty in [`RequestKind::Ask`].
    pub parts: Vec<(u16, &'a [u8])>,
}

impl<'a> Request<'a> {
    /// Appends the encoded request.
    pub fn write(&self, bytes: &mut Vec<u8>) {
        let mut writer = Writer(bytes);
        let (code, after) = match self.kind {
            RequestKind::Write => (WRITE, None),
            RequestKind::StrictRead => (STRICT_READ, None),
            RequestKind::SnapshotRead(after) => (SNAPSHOT_READ, Some(after)),
            RequestKind::Ask => (ASK, None),
        };
        writer.u8(code);
        if let Some(after) = after {
            writer.u64(after.as_ns());
        }
        writer.u64(self.session);
        writer.u64(self.number);
        writer.u32(self.attempt);
        writer.u64(self.finished);
        writer.u16(self.parts.len() as u16);
        for (shard, part) in &self.parts {
            writer.u16(*shard);
            writer.bytes(part);
        }
    }

    /// Returns whether a message to a process is a request, for its replica, by the first byte.
    pub fn is_request(payload: &[u8]) -> bool {
        matches!(payload.first(), Some(&(WRITE..=ASK)))
    }

    /// Parses a request. Returns `None` if it is malformed.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let kind = match reader.u8()? {
            WRITE => RequestKind::Write,
            STRICT_READ => RequestKind::StrictRead,
            SNAPSHOT_READ => RequestKind::SnapshotRead(Timestamp::from_ns(reader.u64()?)),
            ASK => RequestKind::Ask,
            _ => return None,
        };
        let (session, number, attempt) = (reader.u64()?, reader.u64()?, reader.u32()?);
        let finished = reader.u64()?;
        let count = usize::from(reader.u16()?);
        if count > PARTS_MAX || (count == 0) != (kind == RequestKind::Ask) || finished > number {
            return None;
        }
        let mut parts: Vec<(u16, &[u8])> = Vec::new();
        for _ in 0..count {
            let (shard, part) = (reader.u16()?, reader.bytes()?);
            if parts.last().is_some_and(|(last, _)| *last >= shard) {
                return None;
            }
            parts.push((shard, part));
        }
        reader.is_at_end().then_some(Self { kind, session, number, attempt, finished, parts })
    }

    /// Returns the part of `shard`.
    pub fn part(&self, shard: u16) -> Option<&'a [u8]> {
        let position = self.parts.binary_search_by_key(&shard, |(shard, _)| *shard).ok()?;
        Some(self.parts[position].1)
    }
}
