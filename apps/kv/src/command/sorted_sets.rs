//! Commands of sorted sets.

use alloc::vec::Vec;

use super::arguments::Arguments;
use super::{Command, CommandError, ONE, Spec, read, write};
use crate::integer::parse_integer;
use crate::operation::{AddRule, Bound, Condition, Direction, Operation, Selection, SortedRange};
use crate::score::Score;

type Parsed = Result<Command, CommandError>;

pub(super) const COMMANDS: &[Spec] = &[
    write("zadd", -4, ONE, add),
    write("zincrby", 4, ONE, |mut a| {
        let (key, by, member) = (a.key()?, a.score()?, a.bytes()?);
        let rule = AddRule { condition: Condition::Always, direction: Direction::Any };
        Ok(Command::one(a.name, Operation::SortedIncrement { key, rule, by, member }))
    }),
    write("zrem", -3, ONE, |mut a| {
        Ok(Command::one(a.name, Operation::SortedRemove { key: a.key()?, members: a.all() }))
    }),
    read("zscore", 3, ONE, |mut a| {
        Ok(Command::one(a.name, Operation::SortedScore { key: a.key()?, member: a.bytes()? }))
    }),
    read("zmscore", -3, ONE, |mut a| {
        Ok(Command::one(a.name, Operation::SortedScores { key: a.key()?, members: a.all() }))
    }),
    read("zcard", 2, ONE, |mut a| {
        Ok(Command::one(a.name, Operation::SortedCount { key: a.key()? }))
    }),
    read("zcount", 4, ONE, |mut a| {
        let key = a.key()?;
        let selection = by_score(a.next()?, a.next()?)?;
        Ok(Command::one(a.name, Operation::SortedRangeCount { key, selection }))
    }),
    read("zrank", 3, ONE, |a| rank(a, false)),
    read("zrevrank", 3, ONE, |a| rank(a, true)),
    read("zrange", -4, ONE, |a| range(a, Form { has_flags: true, ..Form::default() })),
    read("zrevrange", -4, ONE, |a| range(a, Form { is_reverse: true, ..Form::default() })),
    read("zrangebyscore", -4, ONE, |a| range(a, Form { is_by_score: true, ..Form::default() })),
    read("zrevrangebyscore", -4, ONE, |a| {
        range(a, Form { is_by_score: true, is_reverse: true, ..Form::default() })
    }),
    write("zremrangebyrank", 4, ONE, |mut a| {
        let key = a.key()?;
        let selection = Selection::Index { start: a.integer()?, stop: a.integer()? };
        Ok(Command::one(a.name, remove(key, selection)))
    }),
    write("zremrangebyscore", 4, ONE, |mut a| {
        let key = a.key()?;
        let selection = by_score(a.next()?, a.next()?)?;
        Ok(Command::one(a.name, remove(key, selection)))
    }),
    write("zpopmin", -2, ONE, |a| pop(a, false)),
    write("zpopmax", -2, ONE, |a| pop(a, true)),
];

fn remove(key: crate::key::Key, selection: Selection) -> Operation {
    let range = SortedRange { selection, is_reverse: false, limit: None };
    Operation::SortedRemoveRange { key, range }
}

fn rank(mut a: Arguments<'_>, is_reverse: bool) -> Parsed {
    let (key, member) = (a.key()?, a.bytes()?);
    Ok(Command::one(a.name, Operation::SortedRank { key, member, is_reverse }))
}

fn pop(mut a: Arguments<'_>, is_highest: bool) -> Parsed {
    let key = a.key()?;
    let count = match a.len() {
        0 => None,
        1 => Some(a.count()?),
        _ => return Err(CommandError::Syntax),
    };
    Ok(Command::one(a.name, Operation::SortedPop { key, is_highest, count }))
}

fn add(mut a: Arguments<'_>) -> Parsed {
    let key = a.key()?;
    let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
    let (mut counts_changes, mut is_increment) = (false, false);
    loop {
        match () {
            () if a.has_word("NX") => nx = true,
            () if a.has_word("XX") => xx = true,
            () if a.has_word("GT") => gt = true,
            () if a.has_word("LT") => lt = true,
            () if a.has_word("CH") => counts_changes = true,
            () if a.has_word("INCR") => is_increment = true,
            () => break,
        }
    }
    if a.len() == 0 || a.len() % 2 == 1 {
        return Err(CommandError::Syntax);
    }
    let rule = rule(nx, xx, gt, lt)?;
    if is_increment && a.len() > 2 {
        let message = "INCR option supports a single increment-element pair";
        return Err(CommandError::Other(message));
    }
    let mut pairs = Vec::new();
    while a.len() > 0 {
        pairs.push((a.score()?, a.bytes()?));
    }
    let operation = match (is_increment, pairs.pop()) {
        (true, Some((by, member))) => Operation::SortedIncrement { key, rule, by, member },
        (_, last) => {
            pairs.extend(last);
            Operation::SortedAdd { key, rule, counts_changes, pairs }
        }
    };
    Ok(Command::one(a.name, operation))
}

fn rule(nx: bool, xx: bool, gt: bool, lt: bool) -> Result<AddRule, CommandError> {
    let error = |message| Err(CommandError::Other(message));
    let condition = match (nx, xx) {
        (true, true) => {
            return error("XX and NX options at the same time are not compatible");
        }
        (true, false) => Condition::IfAbsent,
        (false, true) => Condition::IfPresent,
        (false, false) => Condition::Always,
    };
    let direction = match (gt, lt) {
        (false, false) => Direction::Any,
        (true, false) if !nx => Direction::Up,
        (false, true) if !nx => Direction::Down,
        _ => return error("GT, LT, and/or NX options at the same time are not compatible"),
    };
    Ok(AddRule { condition, direction })
}

/// The form of a range command, by its name or by its options.
#[derive(Clone, Copy, Default)]
struct Form {
    is_by_score: bool,
    is_reverse: bool,
    /// Whether options choose the form (`ZRANGE`).
    has_flags: bool,
}

fn range(mut a: Arguments<'_>, mut form: Form) -> Parsed {
    let (key, start, stop) = (a.key()?, a.next()?, a.next()?);
    let (mut limit, mut with_scores) = (None, false);
    while let Some(option) = a.option() {
        match option.as_slice() {
            b"WITHSCORES" => with_scores = true,
            b"LIMIT" if a.len() >= 2 => limit = Some((a.integer()?, a.integer()?)),
            b"BYSCORE" if form.has_flags => form.is_by_score = true,
            b"REV" if form.has_flags => form.is_reverse = true,
            _ => return Err(CommandError::Syntax),
        }
    }
    let selection = match form.is_by_score {
        // A reverse range is written from its highest score on.
        true if form.is_reverse => by_score(stop, start)?,
        true => by_score(start, stop)?,
        false if limit.is_some() => {
            let message = "syntax error, LIMIT is only supported in combination with either \
                           BYSCORE or BYLEX";
            return Err(CommandError::Other(message));
        }
        false => {
            let index = |text| parse_integer(text).ok_or(CommandError::NotInteger);
            Selection::Index { start: index(start)?, stop: index(stop)? }
        }
    };
    let range = SortedRange { selection, is_reverse: form.is_reverse, limit };
    Ok(Command::one(a.name, Operation::SortedRange { key, range, with_scores }))
}

fn by_score(min: &[u8], max: &[u8]) -> Result<Selection, CommandError> {
    let bound = |text: &[u8]| {
        let number = text.strip_prefix(b"(");
        let score = Score::parse(number.unwrap_or(text));
        score.map(|score| Bound { score, is_exclusive: number.is_some() })
    };
    match (bound(min), bound(max)) {
        (Some(min), Some(max)) => Ok(Selection::Score { min, max }),
        _ => Err(CommandError::Other("min or max is not a float")),
    }
}
