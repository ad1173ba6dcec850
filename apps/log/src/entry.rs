//! An entry of a log, and the checksum of all entries up to one.

use alloc::vec::Vec;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{ProcessId, Timestamp};
use onepipe_transaction::{Reader, Writer};
use xxhash_rust::xxh3::xxh3_64;

/// A client of a log: a process, and its session. A process that restarts, or has several clients,
/// has several sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session {
    /// The process.
    pub process: ProcessId,
    /// Distinguishes the clients of the process.
    pub session: u64,
}

/// An entry without its payload. The order of these is that of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId {
    /// Timestamp of the scattering that first brought the entry to a replica.
    pub at: Timestamp,
    /// The client.
    pub client: Session,
    /// Sequence number among the entries of the client, from 1.
    pub number: u64,
}

/// An entry of a log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Its position and origin.
    pub id: EntryId,
    /// What the client has appended.
    pub payload: Vec<u8>,
}

/// Where an entry is in a log, and the checksum of the log up to there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    /// The entry's timestamp.
    pub at: Timestamp,
    /// Number of entries before it.
    pub index: u64,
    /// Checksum of all entries up to this one.
    pub checksum: u64,
}

impl Position {
    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        writer.u64(self.at.as_ns());
        writer.u64(self.index);
        writer.u64(self.checksum);
    }

    pub(crate) fn parse(reader: &mut Reader<'_>) -> Option<Self> {
        let at = Timestamp::from_ns(reader.u64()?);
        Some(Self { at, index: reader.u64()?, checksum: reader.u64()? })
    }
}

impl EntryId {
    /// Returns the checksum of a log that ends with this entry. `before` is the checksum of the
    /// entries before, 0 if there are none.
    pub(crate) fn checksum(&self, before: u64) -> u64 {
        let mut bytes = [0; 36];
        let session = if makes(Mistake::ChecksumWithoutClient) { 0 } else { self.client.session };
        let process = if makes(Mistake::ChecksumWithoutClient) { 0 } else { self.client.process.0 };
        bytes[..8].copy_from_slice(&before.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.at.as_ns().to_le_bytes());
        bytes[16..24].copy_from_slice(&session.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.number.to_le_bytes());
        bytes[32..].copy_from_slice(&process.to_le_bytes());
        xxh3_64(&bytes)
    }

    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        writer.u64(self.at.as_ns());
        self.client.write(writer);
        writer.u64(self.number);
    }

    pub(crate) fn parse(reader: &mut Reader<'_>) -> Option<Self> {
        let at = Timestamp::from_ns(reader.u64()?);
        let client = Session::parse(reader)?;
        let number = reader.u64()?;
        (number > 0).then_some(Self { at, client, number })
    }
}

impl Session {
    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        writer.u32(self.process.0);
        writer.u64(self.session);
    }

    pub(crate) fn parse(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self { process: ProcessId(reader.u32()?), session: reader.u64()? })
    }
}

impl Entry {
    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        self.id.write(writer);
        writer.bytes(&self.payload);
    }

    pub(crate) fn parse(reader: &mut Reader<'_>) -> Option<Self> {
        let id = EntryId::parse(reader)?;
        Some(Self { id, payload: reader.bytes()?.to_vec() })
    }
}
