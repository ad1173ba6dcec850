//! What clients and replicas of a log send to each other.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use onepipe_base::{ProcessId, Timestamp};
use onepipe_transaction::{Reader, Writer};

use crate::cut::Statement;
use crate::entries::Position;
use crate::entry::Entry;
use crate::view::{REPLICAS_MAX, View};

const APPEND: u8 = 1;
const REPAIR: u8 = 2;
const ASK: u8 = 3;
const READ: u8 = 4;
const SYNC: u8 = 5;
const STATEMENT: u8 = 6;
const JOIN: u8 = 7;
const STATUS: u8 = 8;
const ENTRIES: u8 = 9;

/// What each message of a client to a replica begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The view that the client knows.
    pub view: View,
    /// The client's session.
    pub session: u64,
    /// Number of the message among those of the client; the reply has it, too.
    pub request: u64,
    /// All entries of the client below this sequence number are committed.
    pub finished: u64,
    /// Length and checksum of the log up to the last committed entry of the client: all members of
    /// the view have this beginning. Length 0 before the first commit.
    pub stable: (u64, u64),
}

/// A message to a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Appends an entry at the timestamp of the message. Best effort, to all members.
    Append(Header, u64, &'a [u8]),
    /// Adds an entry that another member has at a timestamp, and the receiver lacks. Best effort.
    Repair(Header, u64, Timestamp, &'a [u8]),
    /// Asks for the positions of the entries from the first to the last number. Best effort.
    Ask(Header, u64, u64),
    /// Asks for committed entries from an index on; replicas get all stable ones. Best effort, to
    /// one replica.
    Read(u64, u64),
    /// Asks for a new view, as the logs of this one do not agree. Reliable, to all members.
    Sync(View),
    /// What a member has, and the joiners with the timestamps of their requests. Reliable, to all
    /// members and joiners.
    Statement(View, BTreeMap<ProcessId, Timestamp>, Statement),
    /// Asks for a new view that includes the sender. Reliable, to all members and to the sender.
    Join(View),
}

/// A message of a replica to a client or to a joiner, by best effort.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To an append, a repair, or an ask.
    Status(Status),
    /// To a read.
    Entries(Entries),
}

/// What a replica has of a client's entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The replica's view.
    pub view: View,
    /// The client's session.
    pub session: u64,
    /// The request that is answered; 0 if none is: then the view has changed.
    pub request: u64,
    /// The last accepted sequence number of the client.
    pub last: u64,
    /// Positions of the entries that were asked for, as far as the replica has them.
    pub positions: Vec<(u64, Position)>,
}

/// Entries of a replica's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entries {
    /// The replica's view.
    pub view: View,
    /// The request that is answered.
    pub request: u64,
    /// The index that was asked for.
    pub index: u64,
    /// Number of the entries that the replica sends: the stable ones to replicas, the committed
    /// ones to others.
    pub stable_len: u64,
    /// Checksum of the entries before the first of these; `None` if that is not stable.
    pub checksum: Option<u64>,
    /// The entries, from the index asked for.
    pub entries: Vec<Entry>,
}

impl Header {
    fn write(&self, writer: &mut Writer<'_>) {
        self.view.write(writer);
        writer.u64(self.session);
        writer.u64(self.request);
        writer.u64(self.finished);
        writer.u64(self.stable.0);
        writer.u64(self.stable.1);
    }

    fn parse(reader: &mut Reader<'_>) -> Option<Self> {
        let view = View::parse(reader)?;
        let (session, request, finished) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let stable = (reader.u64()?, reader.u64()?);
        Some(Self { view, session, request, finished, stable })
    }
}

impl<'a> Request<'a> {
    /// Returns the encoded request.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer(&mut bytes);
        match self {
            Self::Append(header, number, payload) => {
                writer.u8(APPEND);
                header.write(&mut writer);
                writer.u64(*number);
                writer.bytes(payload);
            }
            Self::Repair(header, number, at, payload) => {
                writer.u8(REPAIR);
                header.write(&mut writer);
                writer.u64(*number);
                writer.u64(at.as_ns());
                writer.bytes(payload);
            }
            Self::Ask(header, first, last) => {
                writer.u8(ASK);
                header.write(&mut writer);
                writer.u64(*first);
                writer.u64(*last);
            }
            Self::Read(request, index) => {
                writer.u8(READ);
                writer.u64(*request);
                writer.u64(*index);
            }
            Self::Sync(view) => {
                writer.u8(SYNC);
                view.write(&mut writer);
            }
            Self::Statement(view, joiners, statement) => {
                writer.u8(STATEMENT);
                view.write(&mut writer);
                writer.u16(joiners.len() as u16);
                for (process, at) in joiners {
                    writer.u32(process.0);
                    writer.u64(at.as_ns());
                }
                statement.write(&mut writer);
            }
            Self::Join(view) => {
                writer.u8(JOIN);
                view.write(&mut writer);
            }
        }
        bytes
    }

    /// Parses a request. Returns `None` if it is malformed.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let request = match reader.u8()? {
            APPEND => {
                let (header, number) = (Header::parse(&mut reader)?, reader.u64()?);
                Self::Append(header, number, reader.bytes()?)
            }
            REPAIR => {
                let (header, number) = (Header::parse(&mut reader)?, reader.u64()?);
                let at = Timestamp::from_ns(reader.u64()?);
                Self::Repair(header, number, at, reader.bytes()?)
            }
            ASK => Self::Ask(Header::parse(&mut reader)?, reader.u64()?, reader.u64()?),
            READ => Self::Read(reader.u64()?, reader.u64()?),
            SYNC => Self::Sync(View::parse(&mut reader)?),
            STATEMENT => {
                let view = View::parse(&mut reader)?;
                let joiners = parse_joiners(&mut reader)?;
                Self::Statement(view, joiners, Statement::parse(&mut reader)?)
            }
            JOIN => Self::Join(View::parse(&mut reader)?),
            _ => return None,
        };
        let is_valid = match &request {
            Self::Append(_, number, _) | Self::Repair(_, number, ..) => *number > 0,
            Self::Ask(_, first, last) => *first > 0 && first <= last,
            _ => true,
        };
        (is_valid && reader.is_at_end()).then_some(request)
    }

    /// Returns whether the request is sent by the reliable service.
    pub fn is_reliable(&self) -> bool {
        matches!(self, Self::Sync(_) | Self::Statement(..) | Self::Join(..))
    }
}

fn parse_joiners(reader: &mut Reader<'_>) -> Option<BTreeMap<ProcessId, Timestamp>> {
    let count = usize::from(reader.u16()?);
    let mut joiners = BTreeMap::new();
    for _ in 0..count {
        joiners.insert(ProcessId(reader.u32()?), Timestamp::from_ns(reader.u64()?));
    }
    (count <= REPLICAS_MAX && joiners.len() == count).then_some(joiners)
}

impl Reply {
    /// Returns the encoded reply.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer(&mut bytes);
        match self {
            Self::Status(Status { view, session, request, last, positions }) => {
                writer.u8(STATUS);
                view.write(&mut writer);
                writer.u64(*session);
                writer.u64(*request);
                writer.u64(*last);
                writer.u32(positions.len() as u32);
                for (number, position) in positions {
                    writer.u64(*number);
                    writer.u64(position.at.as_ns());
                    writer.u64(position.index);
                    writer.u64(position.checksum);
                }
            }
            Self::Entries(Entries { view, request, index, stable_len, checksum, entries }) => {
                writer.u8(ENTRIES);
                view.write(&mut writer);
                writer.u64(*request);
                writer.u64(*index);
                writer.u64(*stable_len);
                writer.u8(u8::from(checksum.is_some()));
                writer.u64(checksum.unwrap_or(0));
                writer.u32(entries.len() as u32);
                entries.iter().for_each(|entry| entry.write(&mut writer));
            }
        }
        bytes
    }

    /// Parses a reply. Returns `None` if it is malformed.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let reply = match reader.u8()? {
            STATUS => {
                let view = View::parse(&mut reader)?;
                let (session, request) = (reader.u64()?, reader.u64()?);
                let (last, mut positions) = (reader.u64()?, Vec::new());
                for _ in 0..reader.u32()? {
                    let (number, at) = (reader.u64()?, Timestamp::from_ns(reader.u64()?));
                    let (index, checksum) = (reader.u64()?, reader.u64()?);
                    positions.push((number, Position { at, index, checksum }));
                }
                Self::Status(Status { view, session, request, last, positions })
            }
            ENTRIES => {
                let view = View::parse(&mut reader)?;
                let (request, index, stable_len) = (reader.u64()?, reader.u64()?, reader.u64()?);
                let is_stable = match reader.u8()? {
                    flag @ (0 | 1) => flag == 1,
                    _ => return None,
                };
                let (checksum, mut entries) = (reader.u64()?, Vec::new());
                for _ in 0..reader.u32()? {
                    entries.push(Entry::parse(&mut reader)?);
                }
                let checksum = is_stable.then_some(checksum);
                Self::Entries(Entries { view, request, index, stable_len, checksum, entries })
            }
            _ => return None,
        };
        reader.is_at_end().then_some(reply)
    }
}
