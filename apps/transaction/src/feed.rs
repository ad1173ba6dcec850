//! What a replica sends to one that catches up: its state, then what it executes.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{ProcessId, Timestamp};

use crate::codec::{Reader, Writer};
use crate::recovery::Record;
use crate::request::FEED;

/// A part has this many bytes at most, unless a single record is longer.
const PART_LEN: usize = 32 << 10;

const PART: u8 = 0;
const OUTDATED: u8 = 1;
const ABSENT: u8 = 2;
const ASK_STORED: u8 = 3;
const STORED: u8 = 4;

const IS_IMAGE_COMPLETE: u8 = 1;
const IS_CURRENT: u8 = 2;

/// Which feed a message belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FeedId {
    /// Session of the replica that catches up.
    pub session: u64,
    /// Number of its request, or of its admission.
    pub number: u64,
}

/// A message between replicas.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum FeedMessage<'a> {
    /// A part of a feed.
    Part(Part<'a>),
    /// The admission was sent with an older view than the last one. The encoded members.
    Outdated(&'a [u8]),
    /// The sender has not caught up itself, and has no state.
    Absent,
    /// A snapshot of the sender waits until all replicas have stored the writes up to this
    /// timestamp.
    AskStored(Timestamp),
    /// What the sender has stored.
    Stored(Stored),
}

/// What a replica has stored of the writes to its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stored {
    /// All below this timestamp.
    Below(Timestamp),
    /// Nothing that counts: the replica catches up, and another one of its shard has the state.
    Nothing,
}

/// A part of a feed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Part<'a> {
    /// Number of the part, consecutive from 0.
    pub sequence: u32,
    /// The next bytes of the image.
    pub image: &'a [u8],
    /// Whether the image is complete with this part.
    pub is_image_complete: bool,
    /// Whether the sender had nothing more to send.
    pub is_current: bool,
    /// If the feed ends: when the receiver was admitted. Later writes are sent to it by clients.
    pub admitted: Option<Timestamp>,
    /// Writes executed after the image, in order.
    pub records: Vec<Record>,
}

impl<'a> FeedMessage<'a> {
    /// Returns the encoded message.
    pub fn to_bytes(&self, id: FeedId) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer(&mut bytes);
        writer.u8(FEED);
        writer.u8(match self {
            Self::Part(_) => PART,
            Self::Outdated(_) => OUTDATED,
            Self::Absent => ABSENT,
            Self::AskStored(_) => ASK_STORED,
            Self::Stored(_) => STORED,
        });
        writer.u64(id.session);
        writer.u64(id.number);
        match self {
            Self::Part(part) => part.write(&mut writer),
            Self::Outdated(members) => writer.bytes(members),
            Self::AskStored(at) => writer.u64(at.as_ns()),
            Self::Stored(Stored::Below(below)) => writer.timestamp(Some(*below)),
            Self::Stored(Stored::Nothing) => writer.timestamp(None),
            Self::Absent => {}
        }
        bytes
    }

    /// Parses a message. Returns `None` if it is malformed.
    pub fn parse(bytes: &'a [u8]) -> Option<(FeedId, Self)> {
        let mut reader = Reader(bytes);
        if reader.u8()? != FEED {
            return None;
        }
        let code = reader.u8()?;
        let id = FeedId { session: reader.u64()?, number: reader.u64()? };
        let message = match code {
            PART => Self::Part(Part::parse(&mut reader)?),
            OUTDATED => Self::Outdated(reader.bytes()?),
            ABSENT => Self::Absent,
            ASK_STORED => Self::AskStored(Timestamp::from_ns(reader.u64()?)),
            STORED => Self::Stored(reader.timestamp()?.map_or(Stored::Nothing, Stored::Below)),
            _ => return None,
        };
        reader.is_at_end().then_some((id, message))
    }
}

impl<'a> Part<'a> {
    fn write(&self, writer: &mut Writer<'_>) {
        writer.u32(self.sequence);
        let is_complete = if self.is_image_complete { IS_IMAGE_COMPLETE } else { 0 };
        writer.u8(is_complete | if self.is_current { IS_CURRENT } else { 0 });
        writer.timestamp(self.admitted);
        writer.bytes(self.image);
        writer.u32(self.records.len() as u32);
        for record in &self.records {
            writer.u64(record.number);
            let mut bytes = Vec::new();
            record.write(&mut bytes);
            writer.bytes(&bytes);
        }
    }

    fn parse(reader: &mut Reader<'a>) -> Option<Self> {
        let (sequence, flags) = (reader.u32()?, reader.u8()?);
        let admitted = reader.timestamp()?;
        let image = reader.bytes()?;
        let mut records = Vec::new();
        for _ in 0..reader.u32()? {
            let number = reader.u64()?;
            records.push(Record::parse(number, reader.bytes()?)?);
        }
        (flags <= IS_IMAGE_COMPLETE | IS_CURRENT).then_some(Self {
            sequence,
            image,
            is_image_complete: flags & IS_IMAGE_COMPLETE != 0,
            is_current: flags & IS_CURRENT != 0,
            admitted,
            records,
        })
    }
}

/// What is to be sent to one replica that catches up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Feed {
    pub to: ProcessId,
    id: FeedId,
    sequence: u32,
    image: Vec<u8>,
    /// The last write that the image includes.
    last: Option<Timestamp>,
    /// Bytes of the image that were sent.
    sent: usize,
    records: VecDeque<Record>,
    /// When the receiver was admitted: no later records are added.
    admitted: Option<Timestamp>,
    /// Whether a part is to be sent, which may only state that there is nothing more.
    is_due: bool,
    is_ended: bool,
}

impl Feed {
    /// Creates a feed that begins with an image whose last write has the timestamp `last`.
    pub fn new(
        (to, id): (ProcessId, FeedId),
        (image, last): (Vec<u8>, Option<Timestamp>),
        admitted: Option<Timestamp>,
    ) -> Self {
        Self {
            to,
            id,
            sequence: 0,
            image,
            last,
            sent: 0,
            records: VecDeque::new(),
            admitted,
            is_due: true,
            is_ended: false,
        }
    }

    /// Whether the feed is for this session of a process. A previous incarnation of the process may
    /// be admitted after the feed has begun.
    pub fn is_to(&self, process: ProcessId, session: u64) -> bool {
        (self.to, self.id.session) == (process, session)
    }

    /// Adds an executed write.
    pub fn push(&mut self, record: &Record) {
        let is_skipped = self.sequence == 1 && makes(Mistake::ImageWithoutLast);
        if self.admitted.is_none() && !is_skipped {
            self.records.push_back(record.clone());
            self.is_due = true;
        }
    }

    /// Notes that the receiver was admitted.
    pub fn on_admitted(&mut self, at: Timestamp) {
        if self.admitted.is_none() {
            self.admitted = Some(at);
            self.is_due = true;
        }
    }

    /// Returns the timestamp of the last write in the image, if none of it was sent.
    pub fn unsent_image(&self) -> Option<Timestamp> {
        self.last.filter(|_| self.sequence == 0)
    }

    /// Whether the last part was sent.
    pub fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Returns the next part, encoded.
    pub fn poll(&mut self) -> Option<Vec<u8>> {
        if !self.is_due || self.is_ended {
            return None;
        }
        let image_len = PART_LEN.min(self.image.len() - self.sent);
        let until = self.sent + image_len;
        let is_image_complete = until == self.image.len();
        let mut records = Vec::new();
        let mut len = image_len;
        while is_image_complete
            && let Some(record) = self.records.front()
            && (len == 0 || len + record.request.len() <= PART_LEN)
        {
            len += record.request.len() + 1;
            records.extend(self.records.pop_front());
        }
        let is_current = is_image_complete && self.records.is_empty();
        let part = Part {
            sequence: self.sequence,
            image: &self.image[self.sent..until],
            is_image_complete,
            is_current,
            admitted: self.admitted.filter(|_| is_current),
            records,
        };
        let bytes = FeedMessage::Part(part).to_bytes(self.id);
        self.sequence += 1;
        self.sent = until;
        self.is_due = !is_current;
        self.is_ended = is_current && self.admitted.is_some();
        if is_image_complete {
            (self.image, self.sent) = (Vec::new(), 0);
        }
        Some(bytes)
    }
}
