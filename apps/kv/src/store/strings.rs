//! Strings and counters.

use alloc::string::ToString;
use alloc::vec::Vec;

use super::data::{
    Data, Failure, NOT_FLOAT, NOT_INTEGER, OVERFLOW, Reply, STRING_LEN_MAX, TOO_LONG, Text,
    positions,
};
use super::view::View;
use super::writer::Writer;
use crate::decimal::Decimal;
use crate::integer::parse_integer;
use crate::key::Key;
use crate::operation::{Condition, Retention, SetReply};
use crate::value::Value;

pub(super) fn get(view: &View<'_>, key: &Key) -> Reply {
    Ok(Value::bulk_or_null(view.get::<Text>(key)?))
}

pub(super) fn length(view: &View<'_>, key: &Key) -> Reply {
    Ok(Value::count(view.get::<Text>(key)?.map_or(0, Text::len)))
}

pub(super) fn range(view: &View<'_>, key: &Key, start: i64, end: i64) -> Reply {
    let text = view.get::<Text>(key)?.map(Text::as_slice).unwrap_or_default();
    // Redis returns nothing if both count from the end and are in the wrong order, even where the
    // string is shorter than either.
    let is_reversed = start < 0 && end < 0 && start > end;
    // An end before the string is its first byte.
    let len = i64::try_from(text.len()).unwrap_or(i64::MAX);
    let end = if end < 0 { end.saturating_add(len).max(0) } else { end };
    let range = positions(start, end, text.len()).filter(|_| !is_reversed);
    Ok(Value::Bulk(range.map(|(first, last)| text[first..=last].to_vec()).unwrap_or_default()))
}

impl Writer<'_> {
    pub(super) fn set(
        &mut self,
        key: &Key,
        value: Vec<u8>,
        condition: Condition,
        retention: Retention,
        reply: SetReply,
    ) -> Reply {
        let view = self.view();
        let previous = match reply {
            SetReply::Previous => get(&view, key)?,
            SetReply::Outcome | SetReply::Flag => Value::Null,
        };
        let present = view.entry(key);
        let holds = match condition {
            Condition::Always => true,
            Condition::IfAbsent => present.is_none(),
            Condition::IfPresent => present.is_some(),
        };
        let expiry = match retention {
            Retention::Clear => None,
            Retention::Unchanged => present.and_then(|entry| entry.expiry),
            Retention::Until { deadline } => Some(deadline.resolve(self.at())),
        };
        if holds {
            self.put(key, Data::Text(value), expiry);
        }
        Ok(match reply {
            SetReply::Outcome if holds => Value::Ok,
            SetReply::Outcome => Value::Null,
            SetReply::Flag => Value::Integer(holds.into()),
            SetReply::Previous => previous,
        })
    }

    pub(super) fn set_if_none(&mut self, pairs: Vec<(Key, Vec<u8>)>) -> Value {
        let is_free = !pairs.iter().any(|(key, _)| self.has(key));
        if is_free {
            for (key, value) in pairs {
                self.put(&key, Data::Text(value), None);
            }
        }
        Value::Integer(is_free.into())
    }

    pub(super) fn get_delete(&mut self, key: &Key) -> Reply {
        let value = get(&self.view(), key)?;
        self.remove(key);
        Ok(value)
    }

    pub(super) fn get_expire(&mut self, key: &Key, retention: Retention) -> Reply {
        let value = get(&self.view(), key)?;
        if value != Value::Null {
            match retention {
                Retention::Unchanged => {}
                Retention::Clear => {
                    self.persist(key);
                }
                Retention::Until { deadline } => {
                    self.set_expiry(key, Some(deadline.resolve(self.at())));
                }
            }
        }
        Ok(value)
    }

    pub(super) fn append(&mut self, key: &Key, value: &[u8]) -> Reply {
        self.update(key, |text: &mut Text| {
            if text.len() + value.len() > STRING_LEN_MAX {
                return Err(TOO_LONG);
            }
            text.extend_from_slice(value);
            Ok((Value::count(text.len()), true))
        })
    }

    pub(super) fn set_range(&mut self, key: &Key, offset: u64, value: &[u8]) -> Reply {
        self.update(key, |text: &mut Text| {
            if value.is_empty() {
                return Ok((Value::count(text.len()), false));
            }
            let offset = usize::try_from(offset).map_err(|_| TOO_LONG)?;
            let end = offset.checked_add(value.len()).filter(|end| *end <= STRING_LEN_MAX);
            let end = end.ok_or(TOO_LONG)?;
            if text.len() < end {
                text.resize(end, 0);
            }
            text[offset..end].copy_from_slice(value);
            Ok((Value::count(text.len()), true))
        })
    }

    pub(super) fn increment(&mut self, key: &Key, by: i64) -> Reply {
        let is_present = self.has(key);
        self.update(key, |text: &mut Text| {
            let sum = incremented(is_present.then_some(&*text), by)?;
            *text = sum.to_string().into_bytes();
            Ok((Value::Integer(sum), true))
        })
    }

    pub(super) fn increment_decimal(&mut self, key: &Key, by: &[u8]) -> Reply {
        let is_present = self.has(key);
        self.update(key, |text: &mut Text| {
            *text = incremented_decimal(is_present.then_some(&*text), by)?;
            Ok((Value::Bulk(text.clone()), true))
        })
    }
}

/// Returns the sum of the integer in a text, which is 0 without a text, and another.
pub(super) fn incremented(text: Option<&Text>, by: i64) -> Result<i64, Failure> {
    let value = text.map_or(Some(0), |text| parse_integer(text));
    value.ok_or(NOT_INTEGER)?.checked_add(by).ok_or(OVERFLOW)
}

/// Returns, as text, the sum of the decimal number in a text, which is 0 without a text, and
/// another.
pub(super) fn incremented_decimal(text: Option<&Text>, by: &[u8]) -> Result<Vec<u8>, Failure> {
    let value = text.map_or(Some(Decimal::ZERO), |text| Decimal::parse(text));
    let sum = value.ok_or(NOT_FLOAT)?.plus(Decimal::parse(by).ok_or(NOT_FLOAT)?);
    Ok(sum.ok_or(Failure("ERR increment would produce NaN or Infinity"))?.text().into_bytes())
}
