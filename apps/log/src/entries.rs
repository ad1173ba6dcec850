//! The entries of a replica in order, their checksums, and what each client has appended.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use onepipe_base::Timestamp;
use onepipe_base::mistake::{Mistake, makes};

use crate::cut::{Cut, Statement};
use crate::entry::{Entry, EntryId, Session};

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

/// What became of an entry that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accepted {
    New,
    /// The log has the entry.
    Repeated,
    /// The log lacks an entry of the client before this one.
    Gap,
    /// The entry would change the stable beginning.
    Stable,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Entries {
    entries: Vec<Entry>,
    /// The checksum up to each entry.
    checksums: Vec<u64>,
    /// Length of the beginning that all members have, which never changes again.
    stable: usize,
    /// Length of the beginning that is known to be committed. A cut may be void, so what is stable
    /// by a cut alone does not count.
    committed: usize,
    sessions: BTreeMap<Session, Numbers>,
}

/// The entries of one client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Numbers {
    /// The last accepted sequence number.
    last: u64,
    /// The timestamp of each entry of which the client may ask.
    at: BTreeMap<u64, Timestamp>,
}

impl Entries {
    /// Adds an entry in its position, unless the log has it or lacks one of its client before.
    pub fn accept(&mut self, entry: Entry) -> Accepted {
        let EntryId { at, client, number } = entry.id;
        let last = self.last(client);
        let is_repeated = number <= last && !makes(Mistake::AppendedTwice);
        if is_repeated {
            return Accepted::Repeated;
        }
        if number > last + 1 && !makes(Mistake::GapAccepted) {
            return Accepted::Gap;
        }
        let index = match self.entries.binary_search_by(|other| other.id.cmp(&entry.id)) {
            Ok(_) if !makes(Mistake::AppendedTwice) => return Accepted::Repeated,
            Ok(index) | Err(index) => index,
        };
        if index < self.stable {
            return Accepted::Stable;
        }
        let numbers = self.sessions.entry(client).or_default();
        numbers.last = number;
        numbers.at.insert(number, at);
        self.entries.insert(index, entry);
        self.sum_from(index);
        Accepted::New
    }

    /// Computes the checksums from an index on.
    fn sum_from(&mut self, index: usize) {
        self.checksums.truncate(index);
        for entry in &self.entries[index..] {
            let before = self.checksums.last().copied().unwrap_or(0);
            self.checksums.push(entry.id.checksum(before));
        }
    }

    pub fn len(&self) -> u64 {
        self.entries.len() as u64
    }

    pub fn stable_len(&self) -> u64 {
        self.stable as u64
    }

    pub fn get(&self, index: u64) -> Option<&Entry> {
        self.entries.get(usize::try_from(index).ok()?)
    }

    /// Returns the checksum of the first `len` entries; `None` if there are fewer.
    pub fn checksum(&self, len: u64) -> Option<u64> {
        match len {
            0 => Some(0),
            _ => self.checksums.get(usize::try_from(len - 1).ok()?).copied(),
        }
    }

    /// Returns the last accepted sequence number of a client, 0 if there is none.
    pub fn last(&self, client: Session) -> u64 {
        self.sessions.get(&client).map_or(0, |numbers| numbers.last)
    }

    /// Returns where an entry of a client is, unless the client has finished it.
    pub fn position(&self, client: Session, number: u64) -> Option<Position> {
        let at = *self.sessions.get(&client)?.at.get(&number)?;
        let id = EntryId { at, client, number };
        let index = self.entries.binary_search_by(|entry| entry.id.cmp(&id)).ok()?;
        Some(Position { at, index: index as u64, checksum: self.checksums[index] })
    }

    /// Notes that a client has finished all its entries below a number.
    pub fn finish(&mut self, client: Session, finished: u64) {
        if let Some(numbers) = self.sessions.get_mut(&client) {
            numbers.at = numbers.at.split_off(&finished);
        }
    }

    pub fn sessions(&self) -> impl Iterator<Item = Session> {
        self.sessions.keys().copied()
    }

    /// Returns the entries behind the stable beginning.
    pub fn unstable(&self) -> impl Iterator<Item = &EntryId> {
        self.entries[self.stable..].iter().map(|entry| &entry.id)
    }

    /// Notes that all members have the entries up to a position. Returns false if this log differs.
    #[must_use]
    pub fn set_stable(&mut self, len: u64, checksum: u64) -> bool {
        if self.checksum(len) != Some(checksum) {
            return false;
        }
        self.stable = self.stable.max(len as usize);
        true
    }

    /// Notes that a client has received equal checksums of all members for a position. Returns
    /// false if this log differs.
    #[must_use]
    pub fn set_committed(&mut self, len: u64, checksum: u64) -> bool {
        let is_equal = self.set_stable(len, checksum);
        if is_equal {
            self.committed = self.committed.max(len as usize);
        }
        is_equal
    }

    pub fn committed_len(&self) -> u64 {
        self.committed as u64
    }

    pub fn statement(&self) -> Statement {
        Statement {
            stable_len: self.stable_len(),
            stable_checksum: self.checksum(self.stable_len()).expect("stable entries exist"),
            entries: self.unstable().copied().collect(),
        }
    }

    /// Removes what a cut does not retain. The rest is stable. Returns false if the log lacks what
    /// the cut has.
    #[must_use]
    pub fn cut(&mut self, cut: &Cut) -> bool {
        let base = cut.base_len as usize;
        if self.checksum(cut.base_len) != Some(cut.base_checksum) {
            return false;
        }
        let mut index = 0;
        self.entries.retain(|entry| {
            index += 1;
            index <= base || cut.retained.binary_search(&entry.id).is_ok()
        });
        self.restore(base);
        self.set_stable(cut.len(), cut.checksum())
    }

    /// Removes all entries that are not known to be in all logs.
    pub fn drop_unstable(&mut self) {
        self.entries.truncate(self.stable);
        self.restore(self.stable);
    }

    /// Computes checksums from an index on, and the sessions, after entries were removed.
    fn restore(&mut self, index: usize) {
        self.sum_from(index);
        self.sessions.clear();
        for EntryId { at, client, number } in self.entries.iter().map(|entry| entry.id) {
            let numbers = self.sessions.entry(client).or_default();
            numbers.last = numbers.last.max(number);
            numbers.at.insert(number, at);
        }
    }
}
