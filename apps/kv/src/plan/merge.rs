//! One reply from the results of several operations.

use alloc::collections::BTreeSet;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use crate::command::Merge;
use crate::operation::Combination;
use crate::value::Value;

/// Returns the reply to a command. If a result is an error, so is the reply, unless the reply is
/// the array of all results. `None` if the results are not of the types that the operations of the
/// command return.
pub(super) fn merge(merge: Merge, mut results: Vec<Value>, shards: u16) -> Option<Value> {
    if merge != Merge::Array
        && let Some(at) = results.iter().position(|result| matches!(result, Value::Error(_)))
    {
        return Some(results.swap_remove(at));
    }
    match merge {
        Merge::Only => results.pop().filter(|_| results.is_empty()),
        Merge::Ok => Some(Value::Ok),
        Merge::Array => Some(Value::Array(results)),
        Merge::Sum => results.into_iter().try_fold(0, add).map(Value::Integer),
        Merge::Concatenate => {
            let arrays: Option<Vec<Vec<Value>>> = results.into_iter().map(elements).collect();
            Some(Value::Array(arrays?.concat()))
        }
        Merge::Combine(combination) => {
            let members = combine(combination, results)?;
            Some(Value::Set(members.into_iter().map(Value::Bulk).collect()))
        }
        Merge::CountCommon { limit } => {
            let count = combine(Combination::Intersection, results)?.len();
            let limit = usize::try_from(limit).ok().filter(|limit| *limit > 0);
            Some(Value::count(count.min(limit.unwrap_or(usize::MAX))))
        }
        Merge::Scan { shard } => scanned(shard, results.pop()?, shards),
    }
}

fn add(sum: i64, result: Value) -> Option<i64> {
    match result {
        Value::Integer(integer) => sum.checked_add(integer),
        _ => None,
    }
}

fn elements(result: Value) -> Option<Vec<Value>> {
    match result {
        Value::Array(elements) | Value::Set(elements) => Some(elements),
        _ => None,
    }
}

fn members(result: Value) -> Option<BTreeSet<Vec<u8>>> {
    let member = |element| match element {
        Value::Bulk(bytes) => Some(bytes),
        _ => None,
    };
    elements(result)?.into_iter().map(member).collect()
}

fn combine(combination: Combination, results: Vec<Value>) -> Option<BTreeSet<Vec<u8>>> {
    let mut sets = results.into_iter().map(members);
    let first = sets.next()??;
    sets.try_fold(first, |one, other| {
        let other = other?;
        Some(match combination {
            Combination::Intersection => &one & &other,
            Combination::Union => &one | &other,
            Combination::Difference => &one - &other,
        })
    })
}

/// Returns the reply of `SCAN`: the cursor of the next step, and the keys found.
fn scanned(shard: u64, result: Value, shards: u16) -> Option<Value> {
    let Value::Array(pair) = result else { return None };
    let [next, keys @ Value::Array(_)] = <[Value; 2]>::try_from(pair).ok()? else { return None };
    let cursor = match next {
        Value::Integer(position) => shard << 32 | u64::from(u32::try_from(position).ok()?),
        Value::Null if shard + 1 < u64::from(shards) => (shard + 1) << 32,
        Value::Null => 0,
        _ => return None,
    };
    Some(Value::Array(vec![Value::Bulk(cursor.to_string().into_bytes()), keys]))
}
