//! Sets, of which the members are returned in order.

use alloc::vec::Vec;

use super::data::{Data, Failure, Reply, Set};
use super::view::View;
use super::writer::Writer;
use crate::key::Key;
use crate::operation::Combination;
use crate::value::Value;

pub(super) fn members(view: &View<'_>, key: &Key) -> Reply {
    Ok(Value::Set(Value::bulks(view.get::<Set>(key)?.into_iter().flatten())))
}

pub(super) fn count(view: &View<'_>, key: &Key) -> Reply {
    Ok(Value::count(view.get::<Set>(key)?.map_or(0, Set::len)))
}

pub(super) fn contains(view: &View<'_>, key: &Key, member: &[u8]) -> Reply {
    Ok(flag(view.get::<Set>(key)?.is_some_and(|set| set.contains(member))))
}

pub(super) fn contains_many(view: &View<'_>, key: &Key, members: &[Vec<u8>]) -> Reply {
    let set = view.get::<Set>(key)?;
    let contains = |member| flag(set.is_some_and(|set| set.contains(member)));
    Ok(Value::Array(members.iter().map(contains).collect()))
}

fn flag(flag: bool) -> Value {
    Value::Integer(flag.into())
}

/// Returns the combination of sets.
fn combine(view: &View<'_>, combination: Combination, keys: &[Key]) -> Result<Set, Failure> {
    let sets: Result<Vec<Option<&Set>>, Failure> = keys.iter().map(|key| view.get(key)).collect();
    let mut sets = sets?.into_iter().map(|set| set.cloned().unwrap_or_default());
    let first = sets.next().unwrap_or_default();
    Ok(sets.fold(first, |one, other| match combination {
        Combination::Intersection => &one & &other,
        Combination::Union => &one | &other,
        Combination::Difference => &one - &other,
    }))
}

impl Writer<'_> {
    pub(super) fn set_add(&mut self, key: &Key, members: Vec<Vec<u8>>) -> Reply {
        self.update(key, |set: &mut Set| {
            let before = set.len();
            set.extend(members);
            let added = set.len() - before;
            Ok((Value::count(added), added > 0))
        })
    }

    pub(super) fn set_remove(&mut self, key: &Key, members: &[Vec<u8>]) -> Reply {
        self.update(key, |set: &mut Set| {
            let removed = members.iter().filter(|member| set.remove(*member)).count();
            Ok((Value::count(removed), removed > 0))
        })
    }

    pub(super) fn set_move(&mut self, from: &Key, to: &Key, member: Vec<u8>) -> Reply {
        let view = self.view();
        let Some(source) = view.get::<Set>(from)? else { return Ok(flag(false)) };
        view.get::<Set>(to)?;
        if !source.contains(&member) {
            return Ok(flag(false));
        }
        if from != to {
            self.set_remove(from, core::slice::from_ref(&member))?;
            self.set_add(to, alloc::vec![member])?;
        }
        Ok(flag(true))
    }

    pub(super) fn set_store(&mut self, to: &Key, combination: Combination, keys: &[Key]) -> Reply {
        let set = combine(&self.view(), combination, keys)?;
        let count = Value::count(set.len());
        match set.is_empty() {
            true => {
                self.remove(to);
            }
            false => self.put(to, Data::Set(set), None),
        }
        Ok(count)
    }
}
