//! What clients and replicas of a log send to each other.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use onepipe_base::{ProcessId, Timestamp};
use onepipe_transaction::{Reader, Writer};

use crate::base::Base;
use crate::cut::Statement;
use crate::entry::{Entry, Position};
use crate::view::{REPLICAS_MAX, View, parse_processes, write_processes};

const APPEND: u8 = 1;
const REPAIR: u8 = 2;
const ASK: u8 = 3;
const READ: u8 = 4;
const SYNC: u8 = 5;
const STATEMENT: u8 = 6;
const JOIN: u8 = 7;
const STATUS: u8 = 8;
const ENTRIES: u8 = 9;
const FINISHED: u8 = 10;
const APPLIED: u8 = 11;
const READ_STATE: u8 = 12;
const STATE: u8 = 13;
const LEAVE: u8 = 14;

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
    /// Notes that all entries of the client are committed. Best effort, to all members.
    Finished(Header),
    /// What the sender has applied. Best effort, to other members.
    Applied(Applied),
    /// Asks for a part of the state. Best effort, to one replica.
    ReadState(ReadState),
    /// Asks for committed entries from an index on; replicas get all stable ones. Best effort, to
    /// one replica.
    Read(u64, u64),
    /// Asks for a new view, as the logs of this one do not agree. Reliable, to all members.
    Sync(View),
    /// What a member has, the joiners with the timestamps of their requests, and members that have
    /// restarted or left since, which joiners may not know. Reliable, to all members and joiners.
    Statement(View, BTreeMap<ProcessId, Timestamp>, BTreeSet<ProcessId>, Statement),
    /// Asks for a new view that includes the sender. Reliable, to all members and to the sender.
    Join(View),
    /// Notes that the sender ends: this is its last message. Reliable, to all other members and
    /// joiners, as far as the sender knows.
    Leave,
}

/// What a member of a view has applied and knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The view, which the sender has stored.
    pub view: View,
    /// Number of entries that the sender's state includes durably.
    pub len: u64,
    /// Length and checksum of the beginning that the sender knows to be committed.
    pub committed: (u64, u64),
    /// The receiver is to send the same.
    pub is_asking: bool,
}

/// A question for a part of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadState {
    /// Number of the question among those of the sender.
    pub request: u64,
    /// Number of entries that the state of the sender includes.
    pub since: u64,
    /// Number of entries that the first part includes; `None` if the first part is asked for.
    pub image: Option<u64>,
    /// Where the part begins.
    pub cursor: u64,
}

/// A message of a replica to a client or to a joiner, by best effort.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To an append, a repair, or an ask.
    Status(Status),
    /// To a read.
    Entries(Entries),
    /// To a question for a part of the state.
    State(StatePart),
}

/// Which reply a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyKind {
    /// [`Reply::Status`]: for a client.
    Status,
    /// [`Reply::Entries`]: for the process that reads.
    Entries,
    /// [`Reply::State`]: for a replica that catches up.
    State,
}

impl ReplyKind {
    /// Returns which reply a message is, going by its first byte.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        match *bytes.first()? {
            STATUS => Some(Self::Status),
            ENTRIES => Some(Self::Entries),
            STATE => Some(Self::State),
            _ => None,
        }
    }
}

/// A part of a replica's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatePart {
    /// The question that is answered.
    pub request: u64,
    /// Where the part begins.
    pub cursor: u64,
    /// The part; `None` if the image is not available any more, and is to be read again.
    pub part: Option<(Option<u64>, Vec<u8>)>,
    /// The log up to the entries that the first part includes; with the first part only.
    pub base: Option<Base>,
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
    /// Number of entries at the beginning that the replica has no more, as its state includes them.
    pub base_len: u64,
    /// Length and checksum of the beginning that the replica knows to be committed.
    pub committed: (u64, u64),
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
            Self::Finished(header) => {
                writer.u8(FINISHED);
                header.write(&mut writer);
            }
            Self::Applied(Applied { view, len, committed, is_asking }) => {
                writer.u8(APPLIED);
                view.write(&mut writer);
                writer.u64(*len);
                writer.u64(committed.0);
                writer.u64(committed.1);
                writer.u8(u8::from(*is_asking));
            }
            Self::ReadState(ReadState { request, since, image, cursor }) => {
                writer.u8(READ_STATE);
                writer.u64(*request);
                writer.u64(*since);
                write_option(*image, &mut writer);
                writer.u64(*cursor);
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
            Self::Statement(view, joiners, silent, statement) => {
                writer.u8(STATEMENT);
                view.write(&mut writer);
                writer.u16(joiners.len() as u16);
                for (process, at) in joiners {
                    writer.u32(process.0);
                    writer.u64(at.as_ns());
                }
                write_processes(silent, &mut writer);
                statement.write(&mut writer);
            }
            Self::Join(view) => {
                writer.u8(JOIN);
                view.write(&mut writer);
            }
            Self::Leave => writer.u8(LEAVE),
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
            FINISHED => Self::Finished(Header::parse(&mut reader)?),
            APPLIED => {
                let (view, len) = (View::parse(&mut reader)?, reader.u64()?);
                let committed = (reader.u64()?, reader.u64()?);
                let is_asking = parse_flag(&mut reader)?;
                Self::Applied(Applied { view, len, committed, is_asking })
            }
            READ_STATE => {
                let (request, since) = (reader.u64()?, reader.u64()?);
                let (image, cursor) = (parse_option(&mut reader)?, reader.u64()?);
                Self::ReadState(ReadState { request, since, image, cursor })
            }
            READ => Self::Read(reader.u64()?, reader.u64()?),
            SYNC => Self::Sync(View::parse(&mut reader)?),
            STATEMENT => {
                let view = View::parse(&mut reader)?;
                let joiners = parse_joiners(&mut reader)?;
                let silent = parse_processes(&mut reader)?;
                Self::Statement(view, joiners, silent, Statement::parse(&mut reader)?)
            }
            JOIN => Self::Join(View::parse(&mut reader)?),
            LEAVE => Self::Leave,
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
        matches!(self, Self::Sync(_) | Self::Statement(..) | Self::Join(..) | Self::Leave)
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
                    position.write(&mut writer);
                }
            }
            Self::Entries(reply) => {
                writer.u8(ENTRIES);
                reply.write(&mut writer);
            }
            Self::State(StatePart { request, cursor, part, base }) => {
                writer.u8(STATE);
                writer.u64(*request);
                writer.u64(*cursor);
                writer.u8(u8::from(part.is_some()));
                if let Some((next, bytes)) = part {
                    write_option(*next, &mut writer);
                    writer.bytes(bytes);
                }
                writer.u8(u8::from(base.is_some()));
                if let Some(base) = base {
                    base.write(&mut writer);
                }
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
                    positions.push((reader.u64()?, Position::parse(&mut reader)?));
                }
                Self::Status(Status { view, session, request, last, positions })
            }
            ENTRIES => Self::Entries(Entries::parse(&mut reader)?),
            STATE => {
                let (request, cursor) = (reader.u64()?, reader.u64()?);
                let part = match parse_flag(&mut reader)? {
                    true => Some((parse_option(&mut reader)?, reader.bytes()?.to_vec())),
                    false => None,
                };
                let base = match parse_flag(&mut reader)? {
                    true => Some(Base::parse(&mut reader)?),
                    false => None,
                };
                Self::State(StatePart { request, cursor, part, base })
            }
            _ => return None,
        };
        reader.is_at_end().then_some(reply)
    }
}

impl Entries {
    fn write(&self, writer: &mut Writer<'_>) {
        self.view.write(writer);
        let numbers = [self.request, self.index, self.base_len, self.committed.0];
        numbers.into_iter().for_each(|number| writer.u64(number));
        writer.u64(self.committed.1);
        writer.u64(self.stable_len);
        write_option(self.checksum, writer);
        writer.u32(self.entries.len() as u32);
        self.entries.iter().for_each(|entry| entry.write(writer));
    }

    fn parse(reader: &mut Reader<'_>) -> Option<Self> {
        let view = View::parse(reader)?;
        let (request, index, base_len) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let committed = (reader.u64()?, reader.u64()?);
        let (stable_len, checksum) = (reader.u64()?, parse_option(reader)?);
        let mut entries = Vec::new();
        for _ in 0..reader.u32()? {
            entries.push(Entry::parse(reader)?);
        }
        Some(Self { view, request, index, base_len, committed, stable_len, checksum, entries })
    }
}

fn write_option(value: Option<u64>, writer: &mut Writer<'_>) {
    writer.u8(u8::from(value.is_some()));
    writer.u64(value.unwrap_or(0));
}

fn parse_option(reader: &mut Reader<'_>) -> Option<Option<u64>> {
    let (is_some, value) = (parse_flag(reader)?, reader.u64()?);
    (is_some || value == 0).then_some(is_some.then_some(value))
}

fn parse_flag(reader: &mut Reader<'_>) -> Option<bool> {
    match reader.u8()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}
