//! Commands of lists.

use super::arguments::Arguments;
use super::{Command, CommandError, ONE, Spec, TWO, read, write};
use crate::operation::{End, Operation};

type Parsed = Result<Command, CommandError>;

pub(super) const COMMANDS: &[Spec] = &[
    write("lpush", -3, ONE, |a| push(a, End::Left, false)),
    write("rpush", -3, ONE, |a| push(a, End::Right, false)),
    write("lpushx", -3, ONE, |a| push(a, End::Left, true)),
    write("rpushx", -3, ONE, |a| push(a, End::Right, true)),
    write("lpop", -2, ONE, |a| pop(a, End::Left)),
    write("rpop", -2, ONE, |a| pop(a, End::Right)),
    read("llen", 2, ONE, |mut a| Ok(Command::one(a.name, Operation::ListCount { key: a.key()? }))),
    read("lrange", 4, ONE, |mut a| {
        let (key, start, stop) = (a.key()?, a.integer()?, a.integer()?);
        Ok(Command::one(a.name, Operation::ListRange { key, start, stop }))
    }),
    read("lindex", 3, ONE, |mut a| {
        Ok(Command::one(a.name, Operation::ListIndex { key: a.key()?, index: a.integer()? }))
    }),
    write("lset", 4, ONE, |mut a| {
        let (key, index, value) = (a.key()?, a.integer()?, a.bytes()?);
        Ok(Command::one(a.name, Operation::ListSet { key, index, value }))
    }),
    write("lrem", 4, ONE, |mut a| {
        let (key, count, value) = (a.key()?, a.integer()?, a.bytes()?);
        Ok(Command::one(a.name, Operation::ListRemove { key, count, value }))
    }),
    write("ltrim", 4, ONE, |mut a| {
        let (key, start, stop) = (a.key()?, a.integer()?, a.integer()?);
        Ok(Command::one(a.name, Operation::ListTrim { key, start, stop }))
    }),
    write("linsert", 5, ONE, insert),
    write("lmove", 5, TWO, |mut a| {
        let (from, to) = (a.key()?, a.key()?);
        let (from_end, to_end) = (end(&mut a)?, end(&mut a)?);
        Ok(Command::one(a.name, Operation::ListMove { from, to, from_end, to_end }))
    }),
    write("rpoplpush", 3, TWO, |mut a| {
        let (from, to) = (a.key()?, a.key()?);
        let (from_end, to_end) = (End::Right, End::Left);
        Ok(Command::one(a.name, Operation::ListMove { from, to, from_end, to_end }))
    }),
];

fn push(mut a: Arguments<'_>, end: End, only_if_present: bool) -> Parsed {
    let (key, values) = (a.key()?, a.all());
    Ok(Command::one(a.name, Operation::ListPush { key, end, values, only_if_present }))
}

fn pop(mut a: Arguments<'_>, end: End) -> Parsed {
    let key = a.key()?;
    let count = match a.len() {
        0 => None,
        1 => Some(a.count()?),
        _ => return Err(CommandError::Arity(a.name)),
    };
    Ok(Command::one(a.name, Operation::ListPop { key, end, count }))
}

fn insert(mut a: Arguments<'_>) -> Parsed {
    let key = a.key()?;
    let is_before = match a.has_word("BEFORE") {
        true => true,
        false if a.has_word("AFTER") => false,
        false => return Err(CommandError::Syntax),
    };
    let (pivot, value) = (a.bytes()?, a.bytes()?);
    Ok(Command::one(a.name, Operation::ListInsert { key, is_before, pivot, value }))
}

fn end(a: &mut Arguments<'_>) -> Result<End, CommandError> {
    match a.option().as_deref() {
        Some(b"LEFT") => Ok(End::Left),
        Some(b"RIGHT") => Ok(End::Right),
        _ => Err(CommandError::Syntax),
    }
}
