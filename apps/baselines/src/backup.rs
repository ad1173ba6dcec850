//! The log of a shard at a backup.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::locks::Owner;
use crate::message::{Ack, Change, Entry};

/// Largest distance of an accepted entry from the last applied one.
const WINDOW: u64 = 1 << 20;

/// The entries that a backup has received. Those after a gap wait in `pending`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Backup {
    /// Index of the last applied entry. All before are applied, too.
    applied: u64,
    pending: BTreeMap<u64, Entry>,
    prepared: BTreeMap<Owner, Vec<u8>>,
}

impl Backup {
    /// Adds an entry, and applies all up to the next gap. Returns the parts to be executed, each
    /// with the index of its entry.
    pub fn on_entry(&mut self, entry: Entry) -> Vec<(u64, Vec<u8>)> {
        if entry.index <= self.applied || entry.index - self.applied > WINDOW {
            return Vec::new();
        }
        self.pending.insert(entry.index, entry);
        let mut parts = Vec::new();
        while let Some(entry) = self.pending.remove(&(self.applied + 1)) {
            self.applied = entry.index;
            match entry.change {
                Change::Prepare(part) => drop(self.prepared.insert(entry.owner, part)),
                Change::Abort => drop(self.prepared.remove(&entry.owner)),
                Change::Commit(part) => {
                    let part = part.or_else(|| self.prepared.remove(&entry.owner));
                    parts.extend(part.map(|part| (entry.index, part)));
                }
            }
        }
        parts
    }

    /// Returns the acknowledgement for the primary.
    pub fn ack(&self) -> Ack {
        let beyond = self.pending.first_key_value().map_or(u64::MAX, |(index, _)| *index);
        Ack { applied: self.applied, beyond }
    }
}

#[cfg(test)]
mod tests {
    use onepipe_base::ProcessId;

    use super::*;

    #[test]
    fn executes_parts_in_the_order_of_the_log() {
        let owner = |number| Owner { client: ProcessId(1), session: 1, number };
        let entry = |index, number, change| Entry { index, owner: owner(number), change };
        let mut backup = Backup::default();
        let commit = |part: &[u8]| Change::Commit(Some(part.to_vec()));
        assert_eq!(backup.on_entry(entry(2, 2, commit(b"two"))), []);
        assert_eq!(backup.ack(), Ack { applied: 0, beyond: 2 });
        assert_eq!(backup.on_entry(entry(4, 1, Change::Commit(None))), []);
        let executed = backup.on_entry(entry(1, 1, Change::Prepare(b"one".to_vec())));
        assert_eq!(executed, [(2, b"two".to_vec())]);
        assert_eq!(backup.on_entry(entry(2, 2, commit(b"two"))), [], "a duplicate");
        assert_eq!(backup.ack(), Ack { applied: 2, beyond: 4 });
        assert_eq!(backup.on_entry(entry(3, 3, Change::Abort)), [(4, b"one".to_vec())]);
        assert_eq!(backup.ack(), Ack { applied: 4, beyond: u64::MAX });
    }
}
