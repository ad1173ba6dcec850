//! The entries of a replica in order, their checksums, and what each client has appended.

use alloc::collections::{BTreeMap, VecDeque};

use onepipe_base::Timestamp;
use onepipe_base::mistake::{Mistake, makes};

use crate::base::Base;
use crate::cut::{Cut, Statement};
use crate::entry::{Entry, EntryId, Position, Session};

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
    /// The beginning that was trimmed. Its entries were committed.
    base: Base,
    /// The entries behind.
    entries: VecDeque<Entry>,
    /// The checksum up to each of these.
    checksums: VecDeque<u64>,
    /// Length of the beginning that all members have, which never changes again.
    stable_len: u64,
    /// Length of the beginning that is known to be committed. A cut may be void, so what is stable
    /// by a cut alone does not count.
    committed_len: u64,
    sessions: BTreeMap<Session, Numbers>,
}

/// The entries of one client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Numbers {
    /// The last accepted sequence number.
    last: u64,
    /// The timestamp of each entry behind the base of which the client may ask.
    at: BTreeMap<u64, Timestamp>,
}

impl Entries {
    /// Creates a log of which only the trimmed beginning is known.
    pub fn from_base(base: Base) -> Self {
        let (stable_len, committed_len) = (base.len, base.len);
        let mut entries = Self { base, stable_len, committed_len, ..Self::default() };
        entries.restore(0);
        entries
    }

    /// Adds an entry in its position, unless the log has it or lacks one of its client before.
    pub fn accept(&mut self, entry: Entry) -> Accepted {
        let EntryId { at, client, number } = entry.id;
        let last = self.last(client);
        let is_repeated = number <= last && !makes(Mistake::AppendedTwice);
        if is_repeated {
            return Accepted::Repeated;
        }
        if number > last.saturating_add(1) && !makes(Mistake::GapAccepted) {
            return Accepted::Gap;
        }
        let offset = match self.offset_of(&entry.id) {
            Ok(_) if !makes(Mistake::AppendedTwice) => return Accepted::Repeated,
            Ok(offset) | Err(offset) => offset,
        };
        let is_trimmed = self.base.last.is_some_and(|last| entry.id <= last);
        if is_trimmed || self.base.len + (offset as u64) < self.stable_len {
            return Accepted::Stable;
        }
        let numbers = self.sessions.entry(client).or_default();
        numbers.last = number;
        numbers.at.insert(number, at);
        self.entries.insert(offset, entry);
        self.sum_from(offset);
        Accepted::New
    }

    /// Returns where an entry is behind the base, or where it would be.
    fn offset_of(&self, id: &EntryId) -> Result<usize, usize> {
        self.entries.binary_search_by(|other| other.id.cmp(id))
    }

    /// Returns the number of the first `len` entries that are behind the base; `None` if some of
    /// the log do not exist, or the base has more.
    fn behind(&self, len: u64) -> Option<usize> {
        let behind = usize::try_from(len.checked_sub(self.base.len)?).ok()?;
        (behind <= self.entries.len()).then_some(behind)
    }

    /// Computes the checksums from an offset behind the base on.
    fn sum_from(&mut self, offset: usize) {
        self.checksums.truncate(offset);
        for entry in self.entries.range(offset..) {
            let before = self.checksums.back().copied().unwrap_or(self.base.checksum);
            self.checksums.push_back(entry.id.checksum(before));
        }
    }

    pub fn len(&self) -> u64 {
        self.base.len + self.entries.len() as u64
    }

    /// Returns the number of entries at the beginning that are not there any more.
    pub fn base_len(&self) -> u64 {
        self.base.len
    }

    pub fn stable_len(&self) -> u64 {
        self.stable_len
    }

    pub fn get(&self, index: u64) -> Option<&Entry> {
        self.entries.get(self.behind(index)?)
    }

    pub fn last_timestamp(&self) -> Option<Timestamp> {
        let last = self.entries.back().map(|entry| entry.id);
        last.or(self.base.last).map(|id| id.at)
    }

    pub fn base(&self) -> &Base {
        &self.base
    }

    /// Returns the entries behind the base.
    pub fn retained(&self) -> impl ExactSizeIterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Returns the checksum of the first `len` entries; `None` if there are fewer, or the log was
    /// trimmed behind them.
    pub fn checksum(&self, len: u64) -> Option<u64> {
        match self.behind(len)? {
            0 => Some(self.base.checksum),
            behind => self.checksums.get(behind - 1).copied(),
        }
    }

    /// Returns the last accepted sequence number of a client, 0 if there is none.
    pub fn last(&self, client: Session) -> u64 {
        self.sessions.get(&client).map_or(0, |numbers| numbers.last)
    }

    /// Returns where an entry of a client is, unless the client has finished it.
    pub fn position(&self, client: Session, number: u64) -> Option<Position> {
        if let Some(position) = self.base.position(client, number) {
            return Some(position);
        }
        let at = *self.sessions.get(&client)?.at.get(&number)?;
        let offset = self.offset_of(&EntryId { at, client, number }).ok()?;
        let index = self.base.len + offset as u64;
        Some(Position { at, index, checksum: self.checksums[offset] })
    }

    /// Notes that a client has finished all its entries below a number.
    pub fn finish(&mut self, client: Session, finished: u64) {
        self.base.finish(client, finished);
        if let Some(numbers) = self.sessions.get_mut(&client) {
            numbers.at = numbers.at.split_off(&finished);
        }
    }

    pub fn sessions(&self) -> impl Iterator<Item = Session> {
        self.sessions.keys().copied()
    }

    /// Returns the entries behind the stable beginning.
    pub fn unstable(&self) -> impl Iterator<Item = &EntryId> {
        let stable = self.behind(self.stable_len).expect("the stable beginning has the base");
        self.entries.range(stable..).map(|entry| &entry.id)
    }

    /// Notes that all members have the entries up to a position. Returns false if this log differs.
    #[must_use]
    pub fn set_stable(&mut self, len: u64, checksum: u64) -> bool {
        // What was trimmed was committed, so it is equal in all logs.
        if len < self.base.len {
            return true;
        }
        if self.checksum(len) != Some(checksum) {
            return false;
        }
        self.stable_len = self.stable_len.max(len);
        true
    }

    /// Notes that a client has received equal checksums of all members for a position. Returns
    /// false if this log differs.
    #[must_use]
    pub fn set_committed(&mut self, len: u64, checksum: u64) -> bool {
        let is_equal = self.set_stable(len, checksum);
        if is_equal {
            self.committed_len = self.committed_len.max(len);
        }
        is_equal
    }

    pub fn committed_len(&self) -> u64 {
        self.committed_len
    }

    pub fn statement(&self) -> Statement {
        Statement {
            stable_len: self.stable_len,
            stable_checksum: self.checksum(self.stable_len).expect("stable entries exist"),
            entries: self.unstable().copied().collect(),
        }
    }

    /// Removes what a cut does not retain. The rest is stable. Returns false if the log lacks what
    /// the cut has.
    #[must_use]
    pub fn cut(&mut self, cut: &Cut) -> bool {
        let Some(base) = self.behind(cut.base_len) else { return false };
        if self.checksum(cut.base_len) != Some(cut.base_checksum) {
            return false;
        }
        let mut offset = 0;
        self.entries.retain(|entry| {
            offset += 1;
            offset <= base || cut.retained.binary_search(&entry.id).is_ok()
        });
        self.restore(base);
        self.set_stable(cut.len(), cut.checksum())
    }

    /// Removes all entries from an index on; the rest is stable. Returns false if the log is
    /// shorter, or was trimmed behind it.
    #[must_use]
    pub fn truncate(&mut self, len: u64) -> bool {
        let Some(behind) = self.behind(len) else { return false };
        self.entries.truncate(behind);
        self.stable_len = len;
        self.committed_len = self.committed_len.min(len);
        self.restore(behind);
        true
    }

    /// Returns what would remain of the first `len` entries if the log was trimmed there; `None` if
    /// the log is shorter, or was trimmed behind.
    pub fn base_at(&self, len: u64) -> Option<Base> {
        let behind = self.behind(len)?;
        let mut base = self.base.clone();
        for (entry, checksum) in self.entries.iter().zip(&self.checksums).take(behind) {
            let EntryId { client, number, .. } = entry.id;
            let numbers = self.sessions.get(&client);
            let is_open = numbers.is_some_and(|numbers| numbers.at.contains_key(&number));
            base.push(entry.id, *checksum, is_open);
        }
        Some(base)
    }

    /// Removes the first `len` entries, which were committed and applied.
    pub fn trim(&mut self, len: u64) {
        assert!(len <= self.committed_len, "only committed entries are trimmed");
        let Some(base) = self.base_at(len) else { return };
        let behind = (len - self.base.len) as usize;
        for entry in self.entries.drain(..behind) {
            if let Some(numbers) = self.sessions.get_mut(&entry.id.client) {
                numbers.at.remove(&entry.id.number);
            }
        }
        self.checksums.drain(..behind);
        self.base = base;
    }

    /// Computes checksums from an offset behind the base on, and the sessions, after entries were
    /// removed.
    fn restore(&mut self, offset: usize) {
        self.sum_from(offset);
        let of_base = self.base.clients.iter();
        let numbers = |last: u64| Numbers { last, at: BTreeMap::new() };
        self.sessions = of_base.map(|(client, own)| (*client, numbers(own.last))).collect();
        for EntryId { at, client, number } in self.entries.iter().map(|entry| entry.id) {
            let numbers = self.sessions.entry(client).or_default();
            numbers.last = numbers.last.max(number);
            numbers.at.insert(number, at);
        }
    }
}
