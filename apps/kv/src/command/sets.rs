//! Commands of sets.

use super::arguments::Arguments;
use super::{ALL, Command, CommandError, Merge, NONE, ONE, Spec, TWO, read, write};
use crate::key::Key;
use crate::operation::{Combination, Operation};

type Parsed = Result<Command, CommandError>;

pub(super) const COMMANDS: &[Spec] = &[
    write("sadd", -3, ONE, |mut a| {
        Ok(Command::one(a.name, Operation::SetAdd { key: a.key()?, members: a.all() }))
    }),
    write("srem", -3, ONE, |mut a| {
        Ok(Command::one(a.name, Operation::SetRemove { key: a.key()?, members: a.all() }))
    }),
    read("smembers", 2, ONE, |mut a| {
        Ok(Command::one(a.name, Operation::SetMembers { key: a.key()? }))
    }),
    read("scard", 2, ONE, |mut a| Ok(Command::one(a.name, Operation::SetCount { key: a.key()? }))),
    read("sismember", 3, ONE, |mut a| {
        Ok(Command::one(a.name, Operation::SetContains { key: a.key()?, member: a.bytes()? }))
    }),
    read("smismember", -3, ONE, |mut a| {
        Ok(Command::one(a.name, Operation::SetContainsMany { key: a.key()?, members: a.all() }))
    }),
    write("smove", 4, TWO, |mut a| {
        let (from, to, member) = (a.key()?, a.key()?, a.bytes()?);
        Ok(Command::one(a.name, Operation::SetMove { from, to, member }))
    }),
    read("sinter", -2, ALL, |a| combine(a, Combination::Intersection)),
    read("sunion", -2, ALL, |a| combine(a, Combination::Union)),
    read("sdiff", -2, ALL, |a| combine(a, Combination::Difference)),
    read("sintercard", -3, NONE, count_common),
    write("sinterstore", -3, ALL, |a| store(a, Combination::Intersection)),
    write("sunionstore", -3, ALL, |a| store(a, Combination::Union)),
    write("sdiffstore", -3, ALL, |a| store(a, Combination::Difference)),
];

/// Returns a command that reads all sets, which may be on any shards, and merges them.
fn members(name: &'static str, keys: alloc::vec::Vec<Key>, merge: Merge) -> Command {
    let members = |key| Operation::SetMembers { key };
    Command::of(name, keys.into_iter().map(members).collect(), merge)
}

fn combine(mut a: Arguments<'_>, combination: Combination) -> Parsed {
    Ok(members(a.name, a.all_keys(), Merge::Combine(combination)))
}

fn count_common(mut a: Arguments<'_>) -> Parsed {
    let keys = a.counted_keys()?;
    let mut limit = 0;
    while let Some(option) = a.option() {
        let negative = CommandError::Other("LIMIT can't be negative");
        match option.as_slice() {
            b"LIMIT" if a.len() > 0 => limit = a.count().map_err(|_| negative)?,
            _ => return Err(CommandError::Syntax),
        }
    }
    Ok(members(a.name, keys, Merge::CountCommon { limit }))
}

fn store(mut a: Arguments<'_>, combination: Combination) -> Parsed {
    let (to, keys) = (a.key()?, a.all_keys());
    Ok(Command::one(a.name, Operation::SetStore { to, combination, keys }))
}
