//! What clients send to replicas.

use alloc::vec::Vec;

use onepipe_base::Timestamp;

use crate::codec::{Reader, Writer};

/// Maximum number of parts in a request. One with more is malformed.
pub const PARTS_MAX: usize = 1 << 14;

/// First byte of a request. Replies begin with other bytes.
const WRITE: u8 = 1;
const STRICT_READ: u8 = 2;
const SNAPSHOT_READ: u8 = 3;
const ASK: u8 = 4;
const ADMIT: u8 = 5;
const FETCH: u8 = 6;
/// First byte of [`crate::feed`]'s messages.
pub(crate) const FEED: u8 = 7;
/// First byte of [`crate::start`]'s messages.
pub(crate) const START: u8 = 8;

/// Maximum length of an encoded request without its parts: the code, five numbers of 64 bits, one
/// of 32, and the number of parts.
const HEAD_LEN_MAX: usize = 1 + 5 * 8 + 4 + 2;
/// Length of what stands before each part: its shard and length.
const PART_HEAD_LEN: usize = 2 + 4;

/// [`Request::number`] of the admission that opens a store. The admissions of a replica that
/// catches up are numbered from 1.
pub(crate) const OPENING: u64 = 0;

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
    /// Admits the sender, which catches up, as a replica: later writes are sent to it, too. Sent in
    /// one reliable scattering to all replicas of all shards. Each of them refuses whatever follows
    /// in the total order with an older view.
    Admit,
    /// Asks a replica of the sender's shard for its state and for what it executes from now on.
    /// Sent by best effort.
    Fetch,
}

impl RequestKind {
    /// Returns whether the request is sent by the reliable service.
    pub fn is_reliable(self) -> bool {
        matches!(self, Self::Write | Self::Admit)
    }

    fn has_view(self) -> bool {
        matches!(self, Self::Write | Self::Ask | Self::Admit | Self::Fetch)
    }

    fn has_parts(self) -> bool {
        matches!(self, Self::Write | Self::StrictRead | Self::SnapshotRead(_))
    }
}

/// A request to one replica, of a client or of a replica that catches up.
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
    /// All transactions of the session below this number are finished: the client asks for none of
    /// their replies any more.
    pub finished: u64,
    /// The sender's view: the last admission that it knows of. A [`RequestKind::Write`] or
    /// [`RequestKind::Admit`] was sent to all replicas as of that view; a [`RequestKind::Ask`] has
    /// the view of its write. In a [`RequestKind::Fetch`] this is the admission of the sender
    /// itself, as far as it knows. `None` in reads, which are sent without it.
    pub view: Option<Timestamp>,
    /// The part of each shard, in ascending order of the shards. Empty in [`RequestKind::Ask`],
    /// [`RequestKind::Admit`] and [`RequestKind::Fetch`].
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
            RequestKind::Admit => (ADMIT, None),
            RequestKind::Fetch => (FETCH, None),
        };
        writer.u8(code);
        if let Some(after) = after {
            writer.u64(after.as_ns());
        }
        writer.u64(self.session);
        writer.u64(self.number);
        writer.u32(self.attempt);
        writer.u64(self.finished);
        if self.kind.has_view() {
            writer.timestamp(self.view);
        }
        writer.u16(self.parts.len() as u16);
        for (shard, part) in &self.parts {
            writer.u16(*shard);
            writer.bytes(part);
        }
    }

    /// Returns whether a message is for the replica of a process, by its first byte.
    pub fn is_request(payload: &[u8]) -> bool {
        matches!(payload.first(), Some(&(WRITE..=START)))
    }

    /// Parses a request. Returns `None` if it is malformed.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let kind = match reader.u8()? {
            WRITE => RequestKind::Write,
            STRICT_READ => RequestKind::StrictRead,
            SNAPSHOT_READ => RequestKind::SnapshotRead(Timestamp::from_ns(reader.u64()?)),
            ASK => RequestKind::Ask,
            ADMIT => RequestKind::Admit,
            FETCH => RequestKind::Fetch,
            _ => return None,
        };
        let (session, number, attempt) = (reader.u64()?, reader.u64()?, reader.u32()?);
        let finished = reader.u64()?;
        let view = if kind.has_view() { reader.timestamp()? } else { None };
        let count = usize::from(reader.u16()?);
        if count > PARTS_MAX || (count == 0) == kind.has_parts() || finished > number {
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
        reader.is_at_end().then_some(Self { kind, session, number, attempt, finished, view, parts })
    }

    /// Returns the request with other parts.
    pub(crate) fn with_parts(&self, parts: Vec<(u16, &'a [u8])>) -> Self {
        let Self { kind, session, number, attempt, finished, view, .. } = *self;
        Self { kind, session, number, attempt, finished, view, parts }
    }

    /// Returns the encoded request.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let parts: usize = self.parts.iter().map(|(_, part)| PART_HEAD_LEN + part.len()).sum();
        let mut bytes = Vec::with_capacity(HEAD_LEN_MAX + parts);
        self.write(&mut bytes);
        bytes
    }

    /// Returns the part of `shard`.
    pub fn part(&self, shard: u16) -> Option<&'a [u8]> {
        let position = self.parts.binary_search_by_key(&shard, |(shard, _)| *shard).ok()?;
        Some(self.parts[position].1)
    }
}
