//! Changing keys at a timestamp.

use onepipe_base::Timestamp;

use super::Store;
use super::data::{Data, Entry, Failure, Kind, Reply, WRONG_TYPE};
use super::view::View;
use crate::key::Key;
use crate::value::Value;

/// A store that is changed by a transaction.
pub(super) struct Writer<'a> {
    store: &'a mut Store,
    at: Timestamp,
}

/// What a change of a value returns: the result of the operation, and whether the value is another
/// one now.
pub(super) type Changed = Result<(Value, bool), Failure>;

impl<'a> Writer<'a> {
    pub(super) fn new(store: &'a mut Store, at: Timestamp) -> Self {
        Self { store, at }
    }

    pub(super) fn at(&self) -> Timestamp {
        self.at
    }

    /// Returns the keys as the transaction reads them.
    pub(super) fn view(&self) -> View<'_> {
        View::new(self.store, self.at)
    }

    /// Returns whether the store has the key.
    pub(super) fn has(&self, key: &Key) -> bool {
        self.view().entry(key).is_some()
    }

    /// Changes the value of a key, which is empty if the key is absent. A `change` that fails has
    /// changed nothing. A key whose value is empty afterwards is removed.
    pub(super) fn update<K: Kind>(
        &mut self,
        key: &Key,
        change: impl FnOnce(&mut K) -> Changed,
    ) -> Reply {
        self.remove_expired(key);
        let Some(entry) = self.store.entries.get_mut(key) else {
            let mut value = K::default();
            let (result, is_changed) = change(&mut value)?;
            if is_changed && !value.is_void() {
                self.put(key, value.into_data(), None);
            }
            return Ok(result);
        };
        let value = K::of_mut(&mut entry.data).ok_or(WRONG_TYPE)?;
        let (result, is_changed) = change(value)?;
        let is_void = value.is_void();
        if is_changed {
            entry.version = self.at;
        }
        if is_void {
            self.remove(key);
        }
        Ok(result)
    }

    /// Sets the value of a key, whatever it had before.
    pub(super) fn put(&mut self, key: &Key, data: Data, expiry: Option<Timestamp>) {
        if expiry.is_some_and(|expiry| expiry <= self.at) {
            self.remove(key);
            return;
        }
        let entry = Entry { data, version: self.at, expiry };
        let previous = self.store.entries.insert(key.clone(), entry);
        let previous = previous.and_then(|entry| entry.expiry);
        self.move_expiry(key, previous, expiry);
    }

    /// Sets the expiry of a key that is present. If the key is expired then, it is removed.
    pub(super) fn set_expiry(&mut self, key: &Key, expiry: Option<Timestamp>) {
        if expiry.is_some_and(|expiry| expiry <= self.at) {
            self.remove(key);
        } else if let Some(entry) = self.store.entries.get_mut(key) {
            let previous = core::mem::replace(&mut entry.expiry, expiry);
            entry.version = self.at;
            self.move_expiry(key, previous, expiry);
        }
    }

    fn move_expiry(&mut self, key: &Key, from: Option<Timestamp>, to: Option<Timestamp>) {
        if from == to {
            return;
        }
        if let Some(from) = from {
            self.store.expiries.remove(&(from, key.clone()));
        }
        if let Some(to) = to {
            self.store.expiries.insert((to, key.clone()));
        }
    }

    /// Removes a key, and returns its entry if it was present.
    pub(super) fn remove(&mut self, key: &Key) -> Option<Entry> {
        self.remove_expired(key);
        self.remove_since(key, self.at)
    }

    /// Removes all keys.
    pub(super) fn clear(&mut self) {
        self.store.entries.clear();
        self.store.expiries.clear();
        self.store.removed = Some(self.at);
    }

    /// Removes a key if it is expired.
    fn remove_expired(&mut self, key: &Key) {
        let expiry = self.store.entries.get(key).and_then(|entry| entry.expiry);
        if let Some(expiry) = expiry.filter(|expiry| *expiry <= self.at) {
            self.remove_since(key, expiry);
        }
    }

    /// Removes a key that counts as absent from timestamp `since` on.
    fn remove_since(&mut self, key: &Key, since: Timestamp) -> Option<Entry> {
        let entry = self.store.entries.remove(key)?;
        self.move_expiry(key, entry.expiry, None);
        self.store.removed = self.store.removed.max(Some(since));
        Some(entry)
    }

    /// Removes expired keys, the earliest first, at most `max`.
    pub(super) fn sweep(&mut self, max: usize) {
        for _ in 0..max {
            let Some((expiry, key)) = self.store.expiries.first().cloned() else { return };
            if expiry > self.at {
                return;
            }
            self.remove_since(&key, expiry);
        }
    }
}
