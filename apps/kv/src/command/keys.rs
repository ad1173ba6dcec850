//! Commands of keys of any type, and of the whole store.

use alloc::vec;

use super::arguments::{Arguments, deadline};
use super::{ALL, Command, CommandError, Merge, NONE, ONE, Spec, TWO, Target, read, write};
use crate::integer::parse_integer;
use crate::operation::{ExpireCondition, Operation, TimeUnit};

type Parsed = Result<Command, CommandError>;

pub(super) const COMMANDS: &[Spec] = &[
    write("del", -2, ALL, delete),
    write("unlink", -2, ALL, delete),
    read("exists", -2, ALL, exists),
    read("touch", -2, ALL, exists),
    read("type", 2, ONE, |mut a| Ok(Command::one(a.name, Operation::Type { key: a.key()? }))),
    write("expire", -3, ONE, |a| expire(a, 1_000, true)),
    write("pexpire", -3, ONE, |a| expire(a, 1, true)),
    write("expireat", -3, ONE, |a| expire(a, 1_000, false)),
    write("pexpireat", -3, ONE, |a| expire(a, 1, false)),
    read("ttl", 2, ONE, |a| time_to_live(a, TimeUnit::Seconds)),
    read("pttl", 2, ONE, |a| time_to_live(a, TimeUnit::Milliseconds)),
    read("expiretime", 2, ONE, |a| expire_time(a, TimeUnit::Seconds)),
    read("pexpiretime", 2, ONE, |a| expire_time(a, TimeUnit::Milliseconds)),
    write("persist", 2, ONE, |mut a| {
        Ok(Command::one(a.name, Operation::Persist { key: a.key()? }))
    }),
    write("rename", 3, TWO, |a| rename(a, false)),
    write("renamenx", 3, TWO, |a| rename(a, true)),
    write("copy", -3, TWO, copy),
    read("dbsize", 1, NONE, |a| Ok(Command::everywhere(a.name, Operation::Count, Merge::Sum))),
    write("flushall", -1, NONE, flush),
    write("flushdb", -1, NONE, flush),
    read("keys", 2, NONE, |mut a| {
        let pattern = a.bytes()?;
        Ok(Command::everywhere(a.name, Operation::Keys { pattern }, Merge::Concatenate))
    }),
    read("scan", -2, NONE, scan),
];

/// Number of keys that one call of `SCAN` visits.
const SCAN_COUNT: u64 = 10;

fn delete(mut a: Arguments<'_>) -> Parsed {
    let delete = |key| Operation::Delete { key };
    Ok(Command::of(a.name, a.all_keys().into_iter().map(delete).collect(), Merge::Sum))
}

fn exists(mut a: Arguments<'_>) -> Parsed {
    let exists = |key| Operation::Exists { key };
    Ok(Command::of(a.name, a.all_keys().into_iter().map(exists).collect(), Merge::Sum))
}

fn expire(mut a: Arguments<'_>, ms_per_unit: i64, is_relative: bool) -> Parsed {
    let (key, time) = (a.key()?, a.next()?);
    let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
    while let Ok(option) = a.next() {
        match option.to_ascii_uppercase().as_slice() {
            b"NX" => nx = true,
            b"XX" => xx = true,
            b"GT" => gt = true,
            b"LT" => lt = true,
            _ => return Err(CommandError::unsupported_option(option)),
        }
    }
    let condition = match (nx, xx, gt, lt) {
        (true, false, false, false) => ExpireCondition::IfNone,
        (true, ..) => {
            let message = "NX and XX, GT or LT options at the same time are not compatible";
            return Err(CommandError::Other(message));
        }
        (_, _, true, true) => {
            let message = "GT and LT options at the same time are not compatible";
            return Err(CommandError::Other(message));
        }
        (_, true, true, _) => ExpireCondition::IfSomeAndLater,
        (_, true, _, true) => ExpireCondition::IfSomeAndEarlier,
        (_, true, ..) => ExpireCondition::IfSome,
        (_, _, true, _) => ExpireCondition::IfLater,
        (.., true) => ExpireCondition::IfEarlier,
        _ => ExpireCondition::Always,
    };
    // The time is parsed after the options, as in Redis.
    let time = parse_integer(time).ok_or(CommandError::NotInteger)?;
    let deadline = deadline(time, ms_per_unit, is_relative);
    let deadline = deadline.ok_or(CommandError::InvalidExpiry(a.name))?;
    Ok(Command::one(a.name, Operation::Expire { key, deadline, condition }))
}

fn time_to_live(mut a: Arguments<'_>, unit: TimeUnit) -> Parsed {
    Ok(Command::one(a.name, Operation::TimeToLive { key: a.key()?, unit }))
}

fn expire_time(mut a: Arguments<'_>, unit: TimeUnit) -> Parsed {
    Ok(Command::one(a.name, Operation::ExpireTime { key: a.key()?, unit }))
}

fn rename(mut a: Arguments<'_>, only_if_absent: bool) -> Parsed {
    let (from, to) = (a.key()?, a.key()?);
    Ok(Command::one(a.name, Operation::Rename { from, to, only_if_absent }))
}

fn copy(mut a: Arguments<'_>) -> Parsed {
    let (from, to) = (a.key()?, a.key()?);
    let mut can_replace = false;
    while let Some(option) = a.option() {
        match option.as_slice() {
            b"REPLACE" => can_replace = true,
            // There is one database, with the number 0.
            b"DB" => match a.option_integer()? {
                0 => {}
                _ => return Err(CommandError::Other("DB index is out of range")),
            },
            _ => return Err(CommandError::Syntax),
        }
    }
    if from == to {
        return Err(CommandError::Other("source and destination objects are the same"));
    }
    Ok(Command::one(a.name, Operation::Copy { from, to, can_replace }))
}

fn flush(mut a: Arguments<'_>) -> Parsed {
    let _ = a.has_word("ASYNC") || a.has_word("SYNC");
    a.end()?;
    Ok(Command::everywhere(a.name, Operation::Clear, Merge::Ok))
}

/// Parses `SCAN`. The cursor is the number of the shard, and below it 32 bits of position.
fn scan(mut a: Arguments<'_>) -> Parsed {
    let cursor = core::str::from_utf8(a.next()?).ok().and_then(|text| text.parse::<u64>().ok());
    let cursor = cursor.ok_or(CommandError::Other("invalid cursor"))?;
    let (shard, position) = (cursor >> 32, cursor as u32);
    let (mut pattern, mut count, mut of_type) = (None, SCAN_COUNT, None);
    while let Some(option) = a.option() {
        let value = a.bytes().map_err(|_| CommandError::Syntax)?;
        match option.as_slice() {
            b"MATCH" => pattern = Some(value),
            b"TYPE" => of_type = Some(value.to_ascii_lowercase()),
            b"COUNT" => {
                let integer = parse_integer(&value).ok_or(CommandError::NotInteger)?;
                let positive = u64::try_from(integer).ok().filter(|count| *count > 0);
                count = positive.ok_or(CommandError::Syntax)?;
            }
            _ => return Err(CommandError::Syntax),
        }
    }
    let operation = Operation::Scan { position, pattern, count, of_type };
    let command = Command::of(a.name, vec![operation], Merge::Scan { shard });
    Ok(Command { target: Target::Shard(shard), ..command })
}
