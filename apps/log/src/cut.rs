//! What the members of a view have in common: the log with which the next view begins.

use alloc::vec::Vec;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_transaction::{Reader, Writer};

use crate::entry::EntryId;

/// What a member's log holds: a stable beginning, by its length and checksum, and the entries
/// behind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Statement {
    /// Number of entries that are known to be in the logs of all members, in this order.
    pub stable_len: u64,
    /// Checksum of these.
    pub stable_checksum: u64,
    /// The entries behind, in order.
    pub entries: Vec<EntryId>,
}

/// The log of all members after a cut: a beginning that all have, and what they retain behind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cut {
    /// Number of entries at the beginning.
    pub base_len: u64,
    /// Checksum of these.
    pub base_checksum: u64,
    /// The entries behind that remain, in order. All others are removed.
    pub retained: Vec<EntryId>,
}

impl Statement {
    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        writer.u64(self.stable_len);
        writer.u64(self.stable_checksum);
        write_ids(&self.entries, writer);
    }

    pub(crate) fn parse(reader: &mut Reader<'_>) -> Option<Self> {
        let (stable_len, stable_checksum) = (reader.u64()?, reader.u64()?);
        Some(Self { stable_len, stable_checksum, entries: parse_ids(reader)? })
    }
}

impl Cut {
    /// Returns what all statements have in common; `None` without a statement.
    ///
    /// A committed entry is in the logs of all members, and so are all before it, in one order. So
    /// the longest stable beginning is that of all, and the rest that all have contains every
    /// committed entry. Entries of one client are removed from the first one on that a member
    /// lacks: no member has an entry without those of its client before.
    pub fn of<'a>(statements: impl IntoIterator<Item = &'a Statement> + Clone) -> Option<Self> {
        let longest = statements.clone().into_iter().max_by_key(|one| one.stable_len)?;
        let in_all = |id: &&EntryId| {
            let mut others = statements.clone().into_iter();
            others.all(|other| other.entries.binary_search(id).is_ok())
        };
        let is_retained = |id: &&EntryId| in_all(id) && !makes(Mistake::SuffixRemoved);
        let retained = longest.entries.iter().filter(is_retained).copied().collect();
        let (base_len, base_checksum) = (longest.stable_len, longest.stable_checksum);
        Some(Self { base_len, base_checksum, retained })
    }

    /// Returns the number of entries after the cut.
    pub fn len(&self) -> u64 {
        self.base_len.saturating_add(self.retained.len() as u64)
    }

    /// Returns whether the log is empty after the cut.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the checksum of all entries after the cut.
    pub fn checksum(&self) -> u64 {
        self.retained.iter().fold(self.base_checksum, |before, id| id.checksum(before))
    }

    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        writer.u64(self.base_len);
        writer.u64(self.base_checksum);
        write_ids(&self.retained, writer);
    }

    pub(crate) fn parse(reader: &mut Reader<'_>) -> Option<Self> {
        let (base_len, base_checksum) = (reader.u64()?, reader.u64()?);
        Some(Self { base_len, base_checksum, retained: parse_ids(reader)? })
    }
}

fn write_ids(ids: &[EntryId], writer: &mut Writer<'_>) {
    writer.u32(ids.len() as u32);
    ids.iter().for_each(|id| id.write(writer));
}

/// Parses entries in ascending order.
fn parse_ids(reader: &mut Reader<'_>) -> Option<Vec<EntryId>> {
    let mut ids: Vec<EntryId> = Vec::new();
    for _ in 0..reader.u32()? {
        let id = EntryId::parse(reader)?;
        if ids.last().is_some_and(|last| *last >= id) {
            return None;
        }
        ids.push(id);
    }
    Some(ids)
}
