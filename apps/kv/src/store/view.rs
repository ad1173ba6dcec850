//! Reading at a timestamp, with the interval in which what was read is exact.

use core::cell::Cell;

use onepipe_base::Timestamp;
use onepipe_base::mistake::{Mistake, makes};
use onepipe_transaction::Exact;

use super::Store;
use super::data::{Entry, Failure, Kind, WRONG_TYPE};
use crate::key::Key;

/// The keys of a store at a timestamp.
pub(super) struct View<'a> {
    store: &'a Store,
    at: Timestamp,
    from: Cell<Option<Timestamp>>,
    until: Cell<Option<Timestamp>>,
}

impl<'a> View<'a> {
    pub(super) fn new(store: &'a Store, at: Timestamp) -> Self {
        Self { store, at, from: Cell::new(None), until: Cell::new(None) }
    }

    pub(super) fn at(&self) -> Timestamp {
        self.at
    }

    /// Returns the interval in which all that has been read is exact.
    pub(super) fn exact(&self) -> Exact {
        Exact { from: self.from.get(), until: self.until.get() }
    }

    /// Limits the interval: what was read is exact from `timestamp` on.
    pub(super) fn exact_from(&self, timestamp: Timestamp) {
        self.from.set(self.from.get().max(Some(timestamp)));
    }

    /// Limits the interval: what was read is exact before `timestamp`.
    pub(super) fn exact_until(&self, timestamp: Timestamp) {
        let earlier = self.until.get().map_or(timestamp, |until| until.min(timestamp));
        self.until.set(Some(earlier));
    }

    /// Returns a key's entry unless it is expired.
    pub(super) fn entry(&self, key: &Key) -> Option<&'a Entry> {
        let Some(entry) = self.store.entries.get(key) else {
            if let Some(removed) = self.store.removed {
                self.exact_from(removed);
            }
            return None;
        };
        match entry.expiry {
            Some(expiry) if expiry <= self.at => {
                if !makes(Mistake::ExpiryByLocalClock) {
                    self.exact_from(expiry);
                }
                None
            }
            expiry => {
                self.exact_from(entry.version);
                if let Some(expiry) = expiry.filter(|_| !makes(Mistake::ExpiryByLocalClock)) {
                    self.exact_until(expiry);
                }
                Some(entry)
            }
        }
    }

    /// Returns a key's value; `None` if the key is absent.
    pub(super) fn get<K: Kind + 'a>(&self, key: &Key) -> Result<Option<&'a K>, Failure> {
        match self.entry(key) {
            Some(entry) => K::of(&entry.data).map(Some).ok_or(WRONG_TYPE),
            None => Ok(None),
        }
    }

    /// Returns the entries that are not expired, from a key on. The interval is that of a read of
    /// all keys, as any write may change which these are.
    pub(super) fn entries_from(&self, first: Key) -> impl Iterator<Item = (&'a Key, &'a Entry)> {
        self.note_all();
        let at = self.at;
        let is_alive = move |entry: &Entry| entry.expiry.is_none_or(|expiry| expiry > at);
        self.store.entries.range(first..).filter(move |(_, entry)| is_alive(entry))
    }

    /// Returns the number of keys that are not expired.
    pub(super) fn count(&self) -> usize {
        self.note_all();
        let first_alive = (self.at.wrapping_add_ns(1), Key::first_of_hash(0));
        self.store.entries.len() - self.store.expiries.range(..first_alive).count()
    }

    /// Limits the interval as for a read of all keys: from the last write or expiry to the next
    /// expiry.
    fn note_all(&self) {
        if let Some(written) = self.store.written {
            self.exact_from(written);
        }
        let first_alive = (self.at.wrapping_add_ns(1), Key::first_of_hash(0));
        if let Some((expiry, _)) = self.store.expiries.range(..&first_alive).next_back() {
            self.exact_from(*expiry);
        }
        if let Some((expiry, _)) = self.store.expiries.range(&first_alive..).next() {
            self.exact_until(*expiry);
        }
    }
}
