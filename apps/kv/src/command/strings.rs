//! Commands of strings and counters.

use super::arguments::{Arguments, deadline};
use super::{ALL, Command, CommandError, EVERY_SECOND, Merge, ONE, Spec, read, write};
use crate::decimal::Decimal;
use crate::key::Key;
use crate::operation::{Condition, Deadline, Operation, Retention, SetReply};

type Parsed = Result<Command, CommandError>;

pub(super) const COMMANDS: &[Spec] = &[
    read("get", 2, ONE, |mut a| Ok(Command::one(a.name, Operation::Get { key: a.key()? }))),
    write("set", -3, ONE, set),
    write("setnx", 3, ONE, setnx),
    write("setex", 4, ONE, |a| set_with_expiry(a, 1_000)),
    write("psetex", 4, ONE, |a| set_with_expiry(a, 1)),
    write("getset", 3, ONE, getset),
    write("getdel", 2, ONE, |mut a| {
        Ok(Command::one(a.name, Operation::GetDelete { key: a.key()? }))
    }),
    write("getex", -2, ONE, getex),
    write("append", 3, ONE, |mut a| {
        Ok(Command::one(a.name, Operation::Append { key: a.key()?, value: a.bytes()? }))
    }),
    read("strlen", 2, ONE, |mut a| Ok(Command::one(a.name, Operation::Length { key: a.key()? }))),
    read("getrange", 4, ONE, getrange),
    read("substr", 4, ONE, getrange),
    write("setrange", 4, ONE, setrange),
    write("incr", 2, ONE, |mut a| increment(a.name, a.key()?, 1)),
    write("decr", 2, ONE, |mut a| increment(a.name, a.key()?, -1)),
    write("incrby", 3, ONE, |mut a| increment(a.name, a.key()?, a.integer()?)),
    write("decrby", 3, ONE, decrby),
    write("incrbyfloat", 3, ONE, incrbyfloat),
    read("mget", -2, ALL, mget),
    write("mset", -3, EVERY_SECOND, mset),
    write("msetnx", -3, EVERY_SECOND, msetnx),
];

fn set(mut a: Arguments<'_>) -> Parsed {
    let (key, value) = (a.key()?, a.bytes()?);
    let mut condition = Condition::Always;
    let (mut is_retained, mut expiry) = (false, None);
    let mut reply = SetReply::Outcome;
    while let Some(option) = a.option() {
        match option.as_slice() {
            b"NX" if condition != Condition::IfPresent => condition = Condition::IfAbsent,
            b"XX" if condition != Condition::IfAbsent => condition = Condition::IfPresent,
            b"GET" => reply = SetReply::Previous,
            b"KEEPTTL" if expiry.is_none() => is_retained = true,
            option => {
                let next = a.expiry(option)?.ok_or(CommandError::Syntax)?;
                let is_other = expiry.as_ref().is_some_and(|expiry| !next.is_again(expiry));
                if is_retained || is_other {
                    return Err(CommandError::Syntax);
                }
                expiry = Some(next);
            }
        }
    }
    let retention = match expiry {
        Some(expiry) => Retention::Until { deadline: expiry.deadline()? },
        None if is_retained => Retention::Unchanged,
        None => Retention::Clear,
    };
    Ok(Command::one(a.name, Operation::Set { key, value, condition, retention, reply }))
}

fn setnx(mut a: Arguments<'_>) -> Parsed {
    let operation = Operation::Set {
        key: a.key()?,
        value: a.bytes()?,
        condition: Condition::IfAbsent,
        retention: Retention::Clear,
        reply: SetReply::Flag,
    };
    Ok(Command::one(a.name, operation))
}

fn set_with_expiry(mut a: Arguments<'_>, ms_per_unit: i64) -> Parsed {
    let key = a.key()?;
    let time = a.integer()?;
    let deadline = deadline(time, ms_per_unit, true).filter(|_| time > 0);
    let deadline: Deadline = deadline.ok_or(CommandError::InvalidExpiry(a.name))?;
    let retention = Retention::Until { deadline };
    Ok(Command::one(a.name, plain_set(key, a.bytes()?, retention, SetReply::Outcome)))
}

fn getset(mut a: Arguments<'_>) -> Parsed {
    let operation = plain_set(a.key()?, a.bytes()?, Retention::Clear, SetReply::Previous);
    Ok(Command::one(a.name, operation))
}

fn plain_set(
    key: Key,
    value: alloc::vec::Vec<u8>,
    retention: Retention,
    reply: SetReply,
) -> Operation {
    Operation::Set { key, value, condition: Condition::Always, retention, reply }
}

fn getex(mut a: Arguments<'_>) -> Parsed {
    let key = a.key()?;
    let expiry = match a.option() {
        None => return Ok(Command::one(a.name, get_expire(key, Retention::Unchanged))),
        Some(word) if word == b"PERSIST" => None,
        Some(word) => Some(a.expiry(&word)?.ok_or(CommandError::Syntax)?),
    };
    a.end()?;
    let retention = match expiry {
        Some(expiry) => Retention::Until { deadline: expiry.deadline()? },
        None => Retention::Clear,
    };
    Ok(Command::one(a.name, get_expire(key, retention)))
}

fn get_expire(key: Key, retention: Retention) -> Operation {
    Operation::GetExpire { key, retention }
}

fn getrange(mut a: Arguments<'_>) -> Parsed {
    let operation = Operation::GetRange { key: a.key()?, start: a.integer()?, end: a.integer()? };
    Ok(Command::one(a.name, operation))
}

fn setrange(mut a: Arguments<'_>) -> Parsed {
    let (key, offset) = (a.key()?, a.integer()?);
    let offset =
        u64::try_from(offset).map_err(|_| CommandError::Other("offset is out of range"))?;
    Ok(Command::one(a.name, Operation::SetRange { key, offset, value: a.bytes()? }))
}

fn increment(name: &'static str, key: Key, by: i64) -> Parsed {
    Ok(Command::one(name, Operation::Increment { key, by }))
}

fn decrby(mut a: Arguments<'_>) -> Parsed {
    let (key, by) = (a.key()?, a.integer()?);
    let by = by.checked_neg().ok_or(CommandError::Other("decrement would overflow"))?;
    increment(a.name, key, by)
}

fn incrbyfloat(mut a: Arguments<'_>) -> Parsed {
    let (key, by) = (a.key()?, a.bytes()?);
    Decimal::parse(&by).ok_or(CommandError::NotFloat)?;
    Ok(Command::one(a.name, Operation::IncrementDecimal { key, by }))
}

fn mget(mut a: Arguments<'_>) -> Parsed {
    let get = |key| Operation::GetAny { key };
    Ok(Command::of(a.name, a.all_keys().into_iter().map(get).collect(), Merge::Array))
}

fn mset(mut a: Arguments<'_>) -> Parsed {
    let set = |(key, value)| plain_set(Key::new(key), value, Retention::Clear, SetReply::Outcome);
    Ok(Command::of(a.name, a.all_pairs()?.into_iter().map(set).collect(), Merge::Ok))
}

fn msetnx(mut a: Arguments<'_>) -> Parsed {
    let pairs = a.all_pairs()?.into_iter().map(|(key, value)| (Key::new(key), value)).collect();
    Ok(Command::one(a.name, Operation::SetIfNone { pairs }))
}
