//! Sorted sets. A look-up by rank takes time in proportion to the rank.

use alloc::vec::Vec;
use core::ops::Range;

use super::data::{Failure, Reply, SortedSet, positions};
use super::view::View;
use super::writer::Writer;
use crate::key::Key;
use crate::operation::{AddRule, Bound, Condition, Direction, Selection, SortedRange};
use crate::score::Score;
use crate::value::Value;

const NOT_A_NUMBER: Failure = Failure("ERR resulting score is not a number (NaN)");

pub(super) fn score(view: &View<'_>, key: &Key, member: &[u8]) -> Reply {
    Ok(score_in(view.get::<SortedSet>(key)?, member))
}

pub(super) fn scores(view: &View<'_>, key: &Key, members: &[Vec<u8>]) -> Reply {
    let set = view.get::<SortedSet>(key)?;
    Ok(Value::Array(members.iter().map(|member| score_in(set, member)).collect()))
}

fn score_in(set: Option<&SortedSet>, member: &[u8]) -> Value {
    set.and_then(|set| set.score(member)).map_or(Value::Null, Value::Double)
}

pub(super) fn count(view: &View<'_>, key: &Key) -> Reply {
    Ok(Value::count(view.get::<SortedSet>(key)?.map_or(0, SortedSet::len)))
}

pub(super) fn rank(view: &View<'_>, key: &Key, member: &[u8], is_reverse: bool) -> Reply {
    let set = view.get::<SortedSet>(key)?;
    let Some((set, score)) = set.and_then(|set| Some((set, set.score(member)?))) else {
        return Ok(Value::Null);
    };
    let before = set.order().range(..(score, member.to_vec())).count();
    Ok(Value::count(if is_reverse { set.len() - 1 - before } else { before }))
}

pub(super) fn range_count(view: &View<'_>, key: &Key, selection: &Selection) -> Reply {
    let all = SortedRange { selection: selection.clone(), is_reverse: false, limit: None };
    Ok(Value::count(view.get::<SortedSet>(key)?.map_or(0, |set| select(set, &all).len())))
}

pub(super) fn range(view: &View<'_>, key: &Key, range: &SortedRange, with_scores: bool) -> Reply {
    let set = view.get::<SortedSet>(key)?;
    let selected = set.map(|set| select(set, range)).unwrap_or_default();
    Ok(match with_scores {
        true => Value::Pairs(selected.into_iter().map(pair).collect()),
        false => Value::Array(Value::bulks(selected.into_iter().map(|(_, member)| member))),
    })
}

fn pair((score, member): &(Score, Vec<u8>)) -> (Value, Value) {
    (Value::Bulk(member.clone()), Value::Double(*score))
}

/// Returns the members of a range, in its direction.
fn select<'a>(set: &'a SortedSet, range: &SortedRange) -> Vec<&'a (Score, Vec<u8>)> {
    let (skip, take) = match range.limit {
        // A negative offset selects nothing.
        Some((offset, _)) if offset < 0 => (0, 0),
        Some((offset, count)) => (
            usize::try_from(offset).unwrap_or(usize::MAX),
            usize::try_from(count).unwrap_or(usize::MAX),
        ),
        None => (0, usize::MAX),
    };
    match &range.selection {
        Selection::Index { start, stop } => {
            let Some((first, last)) = positions(*start, *stop, set.len()) else {
                return Vec::new();
            };
            let len = last - first + 1;
            match range.is_reverse {
                true => set.order().iter().rev().skip(first).take(len).collect(),
                false => set.order().iter().skip(first).take(len).collect(),
            }
        }
        Selection::Score { min, max } => {
            let Some(limits) = limits(*min, *max) else { return Vec::new() };
            let selected = set.order().range(limits);
            match range.is_reverse {
                true => selected.rev().skip(skip).take(take).collect(),
                false => selected.skip(skip).take(take).collect(),
            }
        }
    }
}

/// Returns the limits of a range of scores; `None` if no score can be within.
fn limits(min: Bound, max: Bound) -> Option<Range<(Score, Vec<u8>)>> {
    let start = if min.is_exclusive { min.score.just_above() } else { min.score };
    let end = if max.is_exclusive { max.score } else { max.score.just_above() };
    (start < end).then_some((start, Vec::new())..(end, Vec::new()))
}

/// Returns whether the rule lets a member have the score `new`.
fn accepts(rule: &AddRule, present: Option<Score>, new: Score) -> bool {
    let holds = match rule.condition {
        Condition::Always => true,
        Condition::IfAbsent => present.is_none(),
        Condition::IfPresent => present.is_some(),
    };
    holds
        && present.is_none_or(|present| match rule.direction {
            Direction::Any => true,
            Direction::Up => new > present,
            Direction::Down => new < present,
        })
}

impl Writer<'_> {
    pub(super) fn sorted_add(
        &mut self,
        key: &Key,
        rule: &AddRule,
        counts_changes: bool,
        pairs: Vec<(Score, Vec<u8>)>,
    ) -> Reply {
        self.update(key, |set: &mut SortedSet| {
            let (mut added, mut changed) = (0, 0);
            for (score, member) in pairs {
                let present = set.score(&member);
                if present != Some(score) && accepts(rule, present, score) {
                    set.insert(member, score);
                    added += usize::from(present.is_none());
                    changed += 1;
                }
            }
            let count = if counts_changes { changed } else { added };
            Ok((Value::count(count), changed > 0))
        })
    }

    pub(super) fn sorted_increment(
        &mut self,
        key: &Key,
        rule: &AddRule,
        by: Score,
        member: Vec<u8>,
    ) -> Reply {
        self.update(key, |set: &mut SortedSet| {
            let present = set.score(&member);
            let score = match present {
                Some(present) => present.plus(by).ok_or(NOT_A_NUMBER)?,
                None => by,
            };
            if !accepts(rule, present, score) {
                return Ok((Value::Null, false));
            }
            set.insert(member, score);
            Ok((Value::Double(score), true))
        })
    }

    pub(super) fn sorted_remove(&mut self, key: &Key, members: &[Vec<u8>]) -> Reply {
        self.update(key, |set: &mut SortedSet| {
            let removed = members.iter().filter(|member| set.remove(member)).count();
            Ok((Value::count(removed), removed > 0))
        })
    }

    pub(super) fn sorted_remove_range(&mut self, key: &Key, range: &SortedRange) -> Reply {
        self.update(key, |set: &mut SortedSet| {
            let selected = select(set, range).into_iter().map(|(_, member)| member.clone());
            let selected: Vec<_> = selected.collect();
            selected.iter().for_each(|member| {
                set.remove(member);
            });
            Ok((Value::count(selected.len()), !selected.is_empty()))
        })
    }

    /// Removes and returns the member with the lowest or highest score, or `count` of them.
    pub(super) fn sorted_pop(&mut self, key: &Key, is_highest: bool, count: Option<u64>) -> Reply {
        self.update(key, |set: &mut SortedSet| {
            let limit = usize::try_from(count.unwrap_or(1)).unwrap_or(usize::MAX);
            let mut popped = Vec::new();
            while popped.len() < limit {
                let order = set.order();
                let next = if is_highest { order.last() } else { order.first() };
                let Some((score, member)) = next.cloned() else { break };
                set.remove(&member);
                popped.push((Value::Bulk(member), Value::Double(score)));
            }
            let is_changed = !popped.is_empty();
            Ok(match count {
                Some(_) => (Value::Pairs(popped), is_changed),
                None => {
                    let flat = popped.into_iter().flat_map(|(member, score)| [member, score]);
                    (Value::Array(flat.collect()), is_changed)
                }
            })
        })
    }
}
