//! Lists.

use alloc::vec::Vec;

use super::data::{Failure, List, NO_KEY, Reply, position, positions};
use super::view::View;
use super::writer::Writer;
use crate::key::Key;
use crate::operation::End;
use crate::value::Value;

pub(super) fn count(view: &View<'_>, key: &Key) -> Reply {
    Ok(Value::count(view.get::<List>(key)?.map_or(0, List::len)))
}

pub(super) fn range(view: &View<'_>, key: &Key, start: i64, stop: i64) -> Reply {
    let Some(list) = view.get::<List>(key)? else { return Ok(Value::Array(Vec::new())) };
    let elements = positions(start, stop, list.len()).map(|(first, last)| list.range(first..=last));
    Ok(Value::Array(Value::bulks(elements.into_iter().flatten())))
}

pub(super) fn index(view: &View<'_>, key: &Key, index: i64) -> Reply {
    let Some(list) = view.get::<List>(key)? else { return Ok(Value::Null) };
    Ok(Value::bulk_or_null(position(index, list.len()).and_then(|position| list.get(position))))
}

fn push(list: &mut List, end: End, value: Vec<u8>) {
    match end {
        End::Left => list.push_front(value),
        End::Right => list.push_back(value),
    }
}

fn pop(list: &mut List, end: End) -> Option<Vec<u8>> {
    match end {
        End::Left => list.pop_front(),
        End::Right => list.pop_back(),
    }
}

impl Writer<'_> {
    pub(super) fn list_push(
        &mut self,
        key: &Key,
        end: End,
        values: Vec<Vec<u8>>,
        only_if_present: bool,
    ) -> Reply {
        self.update(key, |list: &mut List| {
            // A list that is present has elements.
            let is_pushed = !(only_if_present && list.is_empty());
            if is_pushed {
                values.into_iter().for_each(|value| push(list, end, value));
            }
            Ok((Value::count(list.len()), is_pushed))
        })
    }

    pub(super) fn list_pop(&mut self, key: &Key, end: End, count: Option<u64>) -> Reply {
        self.update(key, |list: &mut List| match count {
            None => {
                let value = pop(list, end);
                Ok((value.clone().map_or(Value::Null, Value::Bulk), value.is_some()))
            }
            Some(_) if list.is_empty() => Ok((Value::NullArray, false)),
            Some(count) => {
                let count = usize::try_from(count).unwrap_or(usize::MAX).min(list.len());
                let values = (0..count).filter_map(|_| pop(list, end)).map(Value::Bulk).collect();
                Ok((Value::Array(values), count > 0))
            }
        })
    }

    pub(super) fn list_set(&mut self, key: &Key, index: i64, value: Vec<u8>) -> Reply {
        self.update(key, |list: &mut List| {
            if list.is_empty() {
                return Err(NO_KEY);
            }
            let element = position(index, list.len()).and_then(|position| list.get_mut(position));
            *element.ok_or(Failure("ERR index out of range"))? = value;
            Ok((Value::Ok, true))
        })
    }

    /// Removes elements that are equal to `value`: the first `count`, the last `-count`, or all.
    pub(super) fn list_remove(&mut self, key: &Key, count: i64, value: &[u8]) -> Reply {
        self.update(key, |list: &mut List| {
            let equal = list.iter().filter(|element| *element == value).count();
            let max = match count {
                0 => equal,
                _ => usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX).min(equal),
            };
            // Among the equal elements, those from `first` on are removed.
            let first = if count < 0 { equal - max } else { 0 };
            let mut seen = 0;
            list.retain(|element| {
                if element != value {
                    return true;
                }
                seen += 1;
                !(first + 1..=first + max).contains(&seen)
            });
            Ok((Value::count(max), max > 0))
        })
    }

    pub(super) fn list_trim(&mut self, key: &Key, start: i64, stop: i64) -> Reply {
        self.update(key, |list: &mut List| {
            let before = list.len();
            match positions(start, stop, list.len()) {
                Some((first, last)) => {
                    list.truncate(last + 1);
                    list.drain(..first);
                }
                None => list.clear(),
            }
            Ok((Value::Ok, list.len() != before))
        })
    }

    pub(super) fn list_insert(
        &mut self,
        key: &Key,
        is_before: bool,
        pivot: &[u8],
        value: Vec<u8>,
    ) -> Reply {
        self.update(key, |list: &mut List| {
            if list.is_empty() {
                return Ok((Value::Integer(0), false));
            }
            let Some(position) = list.iter().position(|element| element == pivot) else {
                return Ok((Value::Integer(-1), false));
            };
            list.insert(position + usize::from(!is_before), value);
            Ok((Value::count(list.len()), true))
        })
    }

    pub(super) fn list_move(&mut self, from: &Key, to: &Key, from_end: End, to_end: End) -> Reply {
        let view = self.view();
        if view.get::<List>(from)?.is_none() {
            return Ok(Value::Null);
        }
        view.get::<List>(to)?;
        if from == to {
            // One update, so that a list of one element is never empty, and retains its expiry.
            return self.update(from, |list: &mut List| {
                let Some(value) = pop(list, from_end) else { return Ok((Value::Null, false)) };
                push(list, to_end, value.clone());
                Ok((Value::Bulk(value), true))
            });
        }
        let moved = self.list_pop(from, from_end, None)?;
        if let Value::Bulk(value) = &moved {
            self.list_push(to, to_end, alloc::vec![value.clone()], false)?;
        }
        Ok(moved)
    }
}
