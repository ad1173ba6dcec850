//! Commands of hashes.

use super::arguments::Arguments;
use super::{Command, CommandError, Merge, ONE, Spec, read, write};
use crate::decimal::Decimal;
use crate::operation::Operation;

type Parsed = Result<Command, CommandError>;

pub(super) const COMMANDS: &[Spec] = &[
    write("hset", -4, ONE, |a| set(a, Merge::Only)),
    write("hmset", -4, ONE, |a| set(a, Merge::Ok)),
    write("hsetnx", 4, ONE, |mut a| {
        let (key, field, value) = (a.key()?, a.bytes()?, a.bytes()?);
        Ok(Command::one(a.name, Operation::HashSetIfAbsent { key, field, value }))
    }),
    read("hget", 3, ONE, |mut a| {
        Ok(Command::one(a.name, Operation::HashGet { key: a.key()?, field: a.bytes()? }))
    }),
    read("hmget", -3, ONE, |mut a| {
        Ok(Command::one(a.name, Operation::HashGetMany { key: a.key()?, fields: a.all() }))
    }),
    write("hdel", -3, ONE, |mut a| {
        Ok(Command::one(a.name, Operation::HashDelete { key: a.key()?, fields: a.all() }))
    }),
    read("hgetall", 2, ONE, |mut a| Ok(Command::one(a.name, Operation::HashAll { key: a.key()? }))),
    read("hkeys", 2, ONE, |mut a| {
        Ok(Command::one(a.name, Operation::HashFields { key: a.key()? }))
    }),
    read("hvals", 2, ONE, |mut a| {
        Ok(Command::one(a.name, Operation::HashValues { key: a.key()? }))
    }),
    read("hlen", 2, ONE, |mut a| Ok(Command::one(a.name, Operation::HashCount { key: a.key()? }))),
    read("hexists", 3, ONE, |mut a| {
        Ok(Command::one(a.name, Operation::HashExists { key: a.key()?, field: a.bytes()? }))
    }),
    read("hstrlen", 3, ONE, |mut a| {
        Ok(Command::one(a.name, Operation::HashLength { key: a.key()?, field: a.bytes()? }))
    }),
    write("hincrby", 4, ONE, |mut a| {
        let (key, field, by) = (a.key()?, a.bytes()?, a.integer()?);
        Ok(Command::one(a.name, Operation::HashIncrement { key, field, by }))
    }),
    write("hincrbyfloat", 4, ONE, |mut a| {
        let (key, field, by) = (a.key()?, a.bytes()?, a.bytes()?);
        Decimal::parse(&by).ok_or(CommandError::NotFloat)?;
        Ok(Command::one(a.name, Operation::HashIncrementDecimal { key, field, by }))
    }),
];

fn set(mut a: Arguments<'_>, merge: Merge) -> Parsed {
    let (key, pairs) = (a.key()?, a.all_pairs()?);
    Ok(Command { merge, ..Command::one(a.name, Operation::HashSet { key, pairs }) })
}
