//! Keys of any type, and all keys of the shard.

use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use super::data::{Entry, NO_KEY, Reply};
use super::view::View;
use super::writer::Writer;
use crate::glob;
use crate::key::Key;
use crate::value::Value;

pub(super) fn type_of(view: &View<'_>, key: &Key) -> Value {
    let name = view.entry(key).map_or("none", |entry| entry.data.type_name());
    Value::Simple(name.to_string())
}

/// Returns the keys that match a pattern.
pub(super) fn matching(view: &View<'_>, pattern: &[u8]) -> Value {
    let entries = view.entries_from(Key::first_of_hash(0));
    let names = entries.map(|(key, _)| key.name());
    let names = names.filter(|name| glob::matches(pattern, name));
    Value::Array(names.map(|name| Value::Bulk(name.to_vec())).collect())
}

/// Which of the visited keys a scan returns.
#[derive(Clone, Copy)]
pub(super) struct Filter<'a> {
    pub pattern: Option<&'a [u8]>,
    pub of_type: Option<&'a [u8]>,
}

impl Filter<'_> {
    fn accepts(self, key: &Key, entry: &Entry) -> bool {
        self.pattern.is_none_or(|pattern| glob::matches(pattern, key.name()))
            && self.of_type.is_none_or(|name| name == entry.data.type_name().as_bytes())
    }
}

/// Visits at least `count` keys from a position on, or all that are left, and never stops between
/// keys of one hash. Returns the next position, or null at the end, and the keys that the filter
/// accepts.
/// A scan from position 0 to the end returns every key that is present all the time.
pub(super) fn scan(view: &View<'_>, position: u32, count: u64, filter: Filter<'_>) -> Value {
    let mut found = Vec::new();
    let mut last = None;
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let entries = view.entries_from(Key::first_of_hash(position));
    for (visited, (key, entry)) in entries.enumerate() {
        if visited >= count && last.is_some_and(|last| last != key.hash()) {
            let next = Value::Integer(key.hash().into());
            return Value::Array(vec![next, Value::Array(found)]);
        }
        last = Some(key.hash());
        if filter.accepts(key, entry) {
            found.push(Value::Bulk(key.name().to_vec()));
        }
    }
    Value::Array(vec![Value::Null, Value::Array(found)])
}

impl Writer<'_> {
    pub(super) fn rename(&mut self, from: &Key, to: &Key, only_if_absent: bool) -> Reply {
        if !self.has(from) {
            return Err(NO_KEY);
        }
        let is_done = !(only_if_absent && self.has(to));
        if is_done
            && from != to
            && let Some(entry) = self.remove(from)
        {
            self.put(to, entry.data, entry.expiry);
        }
        Ok(if only_if_absent { Value::Integer(is_done.into()) } else { Value::Ok })
    }

    pub(super) fn copy(&mut self, from: &Key, to: &Key, can_replace: bool) -> Value {
        let source = self.view().entry(from).cloned();
        let is_possible = from != to && (can_replace || !self.has(to));
        let Some(entry) = source.filter(|_| is_possible) else { return Value::Integer(0) };
        self.put(to, entry.data, entry.expiry);
        Value::Integer(1)
    }
}
