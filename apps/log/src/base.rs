//! What a log remembers of the beginning that was trimmed.

use alloc::collections::BTreeMap;

use onepipe_transaction::{Reader, Writer};

use crate::entry::{EntryId, Position, Session};

/// The beginning of a log without its entries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Base {
    /// Number of entries.
    pub len: u64,
    /// Their checksum, 0 if there are none.
    pub checksum: u64,
    /// The last of them.
    pub last: Option<EntryId>,
    /// The clients that have appended them.
    pub(crate) clients: BTreeMap<Session, BaseClient>,
}

/// The entries of one client in the beginning of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct BaseClient {
    /// Sequence number of the last one.
    pub last: u64,
    /// The positions of those that the client may ask for yet. They are committed, but the client
    /// may not know so: it may have missed a reply.
    unfinished: BTreeMap<u64, Position>,
}

impl Base {
    /// Adds the next entry. `is_open` says whether its client may ask for it yet.
    pub(crate) fn push(&mut self, id: EntryId, checksum: u64, is_open: bool) {
        let client = self.clients.entry(id.client).or_default();
        // A client may have sent repairs with timestamps in another order than its numbers.
        client.last = client.last.max(id.number);
        if is_open {
            let position = Position { at: id.at, index: self.len, checksum };
            client.unfinished.insert(id.number, position);
        }
        (self.len, self.checksum, self.last) = (self.len + 1, checksum, Some(id));
    }

    pub(crate) fn position(&self, client: Session, number: u64) -> Option<Position> {
        self.clients.get(&client)?.unfinished.get(&number).copied()
    }

    pub(crate) fn finish(&mut self, client: Session, finished: u64) {
        if let Some(client) = self.clients.get_mut(&client)
            && !client.unfinished.is_empty()
        {
            client.unfinished = client.unfinished.split_off(&finished);
        }
    }

    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        writer.u64(self.len);
        writer.u64(self.checksum);
        if let Some(last) = &self.last {
            last.write(writer);
        }
        writer.u32(self.clients.len() as u32);
        for (session, client) in &self.clients {
            session.write(writer);
            writer.u64(client.last);
            writer.u32(client.unfinished.len() as u32);
            for (number, position) in &client.unfinished {
                writer.u64(*number);
                position.write(writer);
            }
        }
    }

    /// Parses a base. An empty one has no last entry, any other one has.
    pub(crate) fn parse(reader: &mut Reader<'_>) -> Option<Self> {
        let (len, checksum) = (count(reader)?, reader.u64()?);
        let last = if len == 0 { None } else { Some(EntryId::parse(reader)?) };
        let mut clients = BTreeMap::new();
        for _ in 0..reader.u32()? {
            let session = Session::parse(reader)?;
            let mut client = BaseClient { last: count(reader)?, unfinished: BTreeMap::new() };
            for _ in 0..reader.u32()? {
                let number = reader.u64()?;
                client.unfinished.insert(number, Position::parse(reader)?);
            }
            clients.insert(session, client);
        }
        let is_empty = checksum == 0 && clients.is_empty();
        (len > 0 || is_empty).then_some(Self { len, checksum, last, clients })
    }
}

/// Parses a number that has a successor, whatever is added to it.
fn count(reader: &mut Reader<'_>) -> Option<u64> {
    reader.u64().filter(|count| *count <= u64::MAX / 2)
}
