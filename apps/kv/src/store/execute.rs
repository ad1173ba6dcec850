//! Which function executes which operation.

use super::data::{Failure, Reply};
use super::view::View;
use super::writer::Writer;
use super::{hashes, keys, lists, sets, sorted_sets, strings};
use crate::operation::Operation as Op;
use crate::value::Value;

impl View<'_> {
    /// Executes an operation that reads.
    pub(super) fn execute(&self, operation: &Op) -> Reply {
        match operation {
            Op::Get { key } => strings::get(self, key),
            Op::GetAny { key } => Ok(strings::get(self, key).unwrap_or(Value::Null)),
            Op::Length { key } => strings::length(self, key),
            Op::GetRange { key, start, end } => strings::range(self, key, *start, *end),
            Op::Exists { key } => Ok(Value::Integer(self.entry(key).is_some().into())),
            Op::Type { key } => Ok(keys::type_of(self, key)),
            Op::TimeToLive { key, unit } => Ok(super::expiry::time_to_live(self, key, *unit)),
            Op::ExpireTime { key, unit } => Ok(super::expiry::expire_time(self, key, *unit)),
            Op::Count => Ok(Value::count(self.count())),
            Op::Keys { pattern } => Ok(keys::matching(self, pattern)),
            Op::Scan { position, pattern, count, of_type } => {
                let filter =
                    keys::Filter { pattern: pattern.as_deref(), of_type: of_type.as_deref() };
                Ok(keys::scan(self, *position, *count, filter))
            }
            Op::HashGet { key, field } => hashes::get(self, key, field),
            Op::HashGetMany { key, fields } => hashes::get_many(self, key, fields),
            Op::HashAll { key } => hashes::all(self, key),
            Op::HashFields { key } => hashes::fields(self, key),
            Op::HashValues { key } => hashes::values(self, key),
            Op::HashCount { key } => hashes::count(self, key),
            Op::HashExists { key, field } => hashes::exists(self, key, field),
            Op::HashLength { key, field } => hashes::length(self, key, field),
            Op::SetMembers { key } => sets::members(self, key),
            Op::SetCount { key } => sets::count(self, key),
            Op::SetContains { key, member } => sets::contains(self, key, member),
            Op::SetContainsMany { key, members } => sets::contains_many(self, key, members),
            Op::ListCount { key } => lists::count(self, key),
            Op::ListRange { key, start, stop } => lists::range(self, key, *start, *stop),
            Op::ListIndex { key, index } => lists::index(self, key, *index),
            Op::SortedScore { key, member } => sorted_sets::score(self, key, member),
            Op::SortedScores { key, members } => sorted_sets::scores(self, key, members),
            Op::SortedCount { key } => sorted_sets::count(self, key),
            Op::SortedRange { key, range, with_scores } => {
                sorted_sets::range(self, key, range, *with_scores)
            }
            Op::SortedRank { key, member, is_reverse } => {
                sorted_sets::rank(self, key, member, *is_reverse)
            }
            Op::SortedRangeCount { key, selection } => {
                sorted_sets::range_count(self, key, selection)
            }
            _ => Err(Failure("ERR this operation writes")),
        }
    }
}

impl Writer<'_> {
    /// Executes an operation that may write.
    pub(super) fn execute(&mut self, operation: Op) -> Reply {
        match operation {
            Op::Set { key, value, condition, retention, reply } => {
                self.set(&key, value, condition, retention, reply)
            }
            Op::SetIfNone { pairs } => Ok(self.set_if_none(pairs)),
            Op::GetDelete { key } => self.get_delete(&key),
            Op::GetExpire { key, retention } => self.get_expire(&key, retention),
            Op::Append { key, value } => self.append(&key, &value),
            Op::SetRange { key, offset, value } => self.set_range(&key, offset, &value),
            Op::Increment { key, by } => self.increment(&key, by),
            Op::IncrementDecimal { key, by } => self.increment_decimal(&key, &by),
            Op::Delete { key } => Ok(Value::Integer(self.remove(&key).is_some().into())),
            Op::Expire { key, deadline, condition } => Ok(self.expire(&key, deadline, condition)),
            Op::Persist { key } => Ok(self.persist(&key)),
            Op::Rename { from, to, only_if_absent } => self.rename(&from, &to, only_if_absent),
            Op::Copy { from, to, can_replace } => Ok(self.copy(&from, &to, can_replace)),
            Op::Clear => {
                self.clear();
                Ok(Value::Ok)
            }
            Op::HashSet { key, pairs } => self.hash_set(&key, pairs),
            Op::HashSetIfAbsent { key, field, value } => {
                self.hash_set_if_absent(&key, field, value)
            }
            Op::HashDelete { key, fields } => self.hash_delete(&key, &fields),
            Op::HashIncrement { key, field, by } => self.hash_increment(&key, field, by),
            Op::HashIncrementDecimal { key, field, by } => {
                self.hash_increment_decimal(&key, field, &by)
            }
            Op::SetAdd { key, members } => self.set_add(&key, members),
            Op::SetRemove { key, members } => self.set_remove(&key, &members),
            Op::SetMove { from, to, member } => self.set_move(&from, &to, member),
            Op::SetStore { to, combination, keys } => self.set_store(&to, combination, &keys),
            Op::ListPush { key, end, values, only_if_present } => {
                self.list_push(&key, end, values, only_if_present)
            }
            Op::ListPop { key, end, count } => self.list_pop(&key, end, count),
            Op::ListSet { key, index, value } => self.list_set(&key, index, value),
            Op::ListRemove { key, count, value } => self.list_remove(&key, count, &value),
            Op::ListTrim { key, start, stop } => self.list_trim(&key, start, stop),
            Op::ListInsert { key, is_before, pivot, value } => {
                self.list_insert(&key, is_before, &pivot, value)
            }
            Op::ListMove { from, to, from_end, to_end } => {
                self.list_move(&from, &to, from_end, to_end)
            }
            Op::SortedAdd { key, rule, counts_changes, pairs } => {
                self.sorted_add(&key, &rule, counts_changes, pairs)
            }
            Op::SortedIncrement { key, rule, by, member } => {
                self.sorted_increment(&key, &rule, by, member)
            }
            Op::SortedRemove { key, members } => self.sorted_remove(&key, &members),
            Op::SortedRemoveRange { key, range } => self.sorted_remove_range(&key, &range),
            Op::SortedPop { key, is_highest, count } => self.sorted_pop(&key, is_highest, count),
            operation => self.view().execute(&operation),
        }
    }
}
