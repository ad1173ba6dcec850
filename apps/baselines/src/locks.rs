//! The locks and versions of the rows of a shard.

use alloc::collections::BTreeMap;

use onepipe_base::ProcessId;

use crate::keyed::KeyUse;

/// A transaction: the process and the session of its client, and its number in the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Owner {
    pub client: ProcessId,
    pub session: u64,
    pub number: u64,
}

impl Owner {
    /// The least owner.
    pub const FIRST: Self = Self { client: ProcessId(0), session: 0, number: 0 };
}

/// A lock of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Lock {
    /// This transaction may write the row.
    Exclusive(Owner),
    /// This number of transactions may read the row.
    Shared(u32),
}

/// Which rows a transaction locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Scope {
    /// The rows that the transaction writes.
    Writes,
    /// All rows that the transaction uses. It shares those that it only reads with other readers.
    All,
}

/// The locks and versions of rows. A row that was never written has version 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Locks {
    locks: BTreeMap<u64, Lock>,
    versions: BTreeMap<u64, u64>,
}

impl Locks {
    /// Returns the version of a row.
    pub fn version(&self, key: u64) -> u64 {
        self.versions.get(&key).copied().unwrap_or_default()
    }

    /// Whether a transaction other than `owner` may be writing the row.
    pub fn is_written_by_other(&self, key: u64, owner: Owner) -> bool {
        matches!(self.locks.get(&key), Some(Lock::Exclusive(other)) if *other != owner)
    }

    /// Locks rows, all or none. Returns false if another transaction holds one. The owner holds
    /// none of them yet.
    pub fn lock(&mut self, owner: Owner, rows: &[KeyUse], scope: Scope) -> bool {
        let needs = |row: &&KeyUse| row.is_write || scope == Scope::All;
        let is_free = |row: &KeyUse| match self.locks.get(&row.key) {
            None => true,
            Some(Lock::Shared(_)) => !row.is_write,
            Some(Lock::Exclusive(_)) => false,
        };
        if !rows.iter().filter(needs).all(is_free) {
            return false;
        }
        for row in rows.iter().filter(needs) {
            if row.is_write {
                self.locks.insert(row.key, Lock::Exclusive(owner));
            } else if let Lock::Shared(readers) =
                self.locks.entry(row.key).or_insert(Lock::Shared(0))
            {
                *readers += 1;
            }
        }
        true
    }

    /// Releases what [`Locks::lock`] has locked.
    pub fn unlock(&mut self, rows: &[KeyUse], scope: Scope) {
        for row in rows.iter().filter(|row| row.is_write || scope == Scope::All) {
            match self.locks.get_mut(&row.key) {
                Some(Lock::Shared(readers)) if *readers > 1 => *readers -= 1,
                Some(_) => drop(self.locks.remove(&row.key)),
                None => debug_assert!(false, "row {} is not locked", row.key),
            }
        }
    }

    /// Gives the written rows their next versions.
    pub fn on_written(&mut self, rows: &[KeyUse]) {
        for row in rows.iter().filter(|row| row.is_write) {
            *self.versions.entry(row.key).or_default() += 1;
        }
    }

    /// Returns the number of locked rows.
    pub fn len(&self) -> usize {
        self.locks.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(number: u64) -> Owner {
        Owner { client: ProcessId(1), session: 1, number }
    }

    fn rows(keys: &[(u64, bool)]) -> alloc::vec::Vec<KeyUse> {
        keys.iter().map(|(key, is_write)| KeyUse { key: *key, is_write: *is_write }).collect()
    }

    #[test]
    fn readers_share_a_row_and_exclude_a_writer() {
        let mut locks = Locks::default();
        let (read, write) = (rows(&[(1, false)]), rows(&[(1, true)]));
        assert!(locks.lock(owner(1), &read, Scope::All));
        assert!(locks.lock(owner(2), &read, Scope::All));
        assert!(!locks.lock(owner(3), &write, Scope::All));
        locks.unlock(&read, Scope::All);
        assert!(!locks.lock(owner(3), &write, Scope::All));
        locks.unlock(&read, Scope::All);
        assert!(locks.lock(owner(3), &write, Scope::All));
        assert!(!locks.lock(owner(4), &read, Scope::All));
        assert!(locks.is_written_by_other(1, owner(4)) && !locks.is_written_by_other(1, owner(3)));
        locks.unlock(&write, Scope::All);
        assert_eq!(locks.len(), 0);
    }

    #[test]
    fn a_conflict_locks_nothing() {
        let mut locks = Locks::default();
        assert!(locks.lock(owner(1), &rows(&[(2, true)]), Scope::Writes));
        assert!(!locks.lock(owner(2), &rows(&[(1, true), (2, true)]), Scope::Writes));
        assert_eq!(locks.len(), 1);
        assert!(locks.lock(owner(2), &rows(&[(1, true), (2, false)]), Scope::Writes));
    }

    #[test]
    fn only_written_rows_have_new_versions() {
        let mut locks = Locks::default();
        locks.on_written(&rows(&[(1, true), (2, false)]));
        assert_eq!((locks.version(1), locks.version(2)), (1, 0));
    }
}
