//! The operations of which the parts of transactions consist, each executed by one shard.

use alloc::vec::Vec;

use onepipe_base::Timestamp;

use crate::codec::{Field, Reader, coded};
use crate::key::Key;
use crate::score::Score;

type Bytes = Vec<u8>;

/// Operations with this code or a higher one may write.
const FIRST_WRITE: u8 = 100;
const NS_PER_MS: i64 = 1_000_000;

/// The largest number of milliseconds, absolute or relative, in an expiry: 292 years, or the year
/// 2262.
pub(crate) const EXPIRY_MS_MAX: i64 = i64::MAX / NS_PER_MS;

coded! {
    /// An operation, which has one result: a [`crate::Value`].
    enum Operation {
        1 => Get { key: Key },
        /// Like `Get`, with null for a key of another type.
        2 => GetAny { key: Key },
        3 => Length { key: Key },
        4 => GetRange { key: Key, start: i64, end: i64 },
        5 => Exists { key: Key },
        6 => Type { key: Key },
        7 => TimeToLive { key: Key, unit: TimeUnit },
        8 => ExpireTime { key: Key, unit: TimeUnit },
        9 => Count,
        10 => Keys { pattern: Bytes },
        11 => Scan { position: u32, pattern: Option<Bytes>, count: u64, of_type: Option<Bytes> },
        20 => HashGet { key: Key, field: Bytes },
        21 => HashGetMany { key: Key, fields: Vec<Bytes> },
        22 => HashAll { key: Key },
        23 => HashFields { key: Key },
        24 => HashValues { key: Key },
        25 => HashCount { key: Key },
        26 => HashExists { key: Key, field: Bytes },
        27 => HashLength { key: Key, field: Bytes },
        30 => SetMembers { key: Key },
        31 => SetCount { key: Key },
        32 => SetContains { key: Key, member: Bytes },
        33 => SetContainsMany { key: Key, members: Vec<Bytes> },
        40 => ListCount { key: Key },
        41 => ListRange { key: Key, start: i64, stop: i64 },
        42 => ListIndex { key: Key, index: i64 },
        50 => SortedScore { key: Key, member: Bytes },
        51 => SortedScores { key: Key, members: Vec<Bytes> },
        52 => SortedCount { key: Key },
        53 => SortedRange { key: Key, range: SortedRange, with_scores: bool },
        54 => SortedRank { key: Key, member: Bytes, is_reverse: bool },
        55 => SortedRangeCount { key: Key, selection: Selection },

        100 => Set {
            key: Key,
            value: Bytes,
            condition: Condition,
            retention: Retention,
            reply: SetReply,
        },
        /// Sets all keys if none of them exists.
        101 => SetIfNone { pairs: Vec<(Key, Bytes)> },
        102 => GetDelete { key: Key },
        103 => GetExpire { key: Key, retention: Retention },
        104 => Append { key: Key, value: Bytes },
        105 => SetRange { key: Key, offset: u64, value: Bytes },
        106 => Increment { key: Key, by: i64 },
        /// Adds a decimal number, given as text.
        107 => IncrementDecimal { key: Key, by: Bytes },
        110 => Delete { key: Key },
        111 => Expire { key: Key, deadline: Deadline, condition: ExpireCondition },
        112 => Persist { key: Key },
        113 => Rename { from: Key, to: Key, only_if_absent: bool },
        114 => Copy { from: Key, to: Key, can_replace: bool },
        115 => Clear,
        120 => HashSet { key: Key, pairs: Vec<(Bytes, Bytes)> },
        121 => HashSetIfAbsent { key: Key, field: Bytes, value: Bytes },
        122 => HashDelete { key: Key, fields: Vec<Bytes> },
        123 => HashIncrement { key: Key, field: Bytes, by: i64 },
        124 => HashIncrementDecimal { key: Key, field: Bytes, by: Bytes },
        130 => SetAdd { key: Key, members: Vec<Bytes> },
        131 => SetRemove { key: Key, members: Vec<Bytes> },
        132 => SetMove { from: Key, to: Key, member: Bytes },
        133 => SetStore { to: Key, combination: Combination, keys: Vec<Key> },
        140 => ListPush { key: Key, end: End, values: Vec<Bytes>, only_if_present: bool },
        141 => ListPop { key: Key, end: End, count: Option<u64> },
        142 => ListSet { key: Key, index: i64, value: Bytes },
        143 => ListRemove { key: Key, count: i64, value: Bytes },
        144 => ListTrim { key: Key, start: i64, stop: i64 },
        145 => ListInsert { key: Key, is_before: bool, pivot: Bytes, value: Bytes },
        146 => ListMove { from: Key, to: Key, from_end: End, to_end: End },
        150 => SortedAdd {
            key: Key,
            rule: AddRule,
            counts_changes: bool,
            pairs: Vec<(Score, Bytes)>,
        },
        151 => SortedIncrement { key: Key, rule: AddRule, by: Score, member: Bytes },
        152 => SortedRemove { key: Key, members: Vec<Bytes> },
        153 => SortedRemoveRange { key: Key, range: SortedRange },
        154 => SortedPop { key: Key, is_highest: bool, count: Option<u64> },
    }
}

impl Operation {
    /// Returns whether the operation may change the state.
    pub(crate) fn is_write(&self) -> bool {
        self.code() >= FIRST_WRITE
    }

    /// Returns the names of the keys that the operation reads or writes.
    pub(crate) fn named_keys(&self) -> Vec<&[u8]> {
        let mut keys = Vec::new();
        self.keys(&mut keys);
        keys
    }
}

/// Decodes a part of a transaction: operations until the end of the bytes.
pub(crate) fn decode_part(part: &[u8]) -> Option<Vec<Operation>> {
    let mut reader = Reader::new(part);
    let mut operations = Vec::new();
    while !reader.is_empty() {
        operations.push(Operation::take(&mut reader)?);
    }
    Some(operations)
}

coded! {
    /// Whether a value is set, depending on whether there is one already.
    #[derive(Copy)]
    enum Condition {
        0 => Always,
        1 => IfAbsent,
        2 => IfPresent,
    }
}

coded! {
    /// What `Set` returns.
    #[derive(Copy)]
    enum SetReply {
        /// OK, or null if the condition does not hold.
        0 => Outcome,
        /// 1 or 0.
        1 => Flag,
        /// The previous value.
        2 => Previous,
    }
}

coded! {
    /// What becomes of the expiry of a key.
    #[derive(Copy)]
    enum Retention {
        0 => Clear,
        1 => Unchanged,
        2 => Until { deadline: Deadline },
    }
}

coded! {
    /// When a key expires, in milliseconds, at most [`EXPIRY_MS_MAX`].
    #[derive(Copy)]
    enum Deadline {
        /// Relative to the timestamp of the transaction.
        0 => After { ms: i64 },
        /// Since the UNIX epoch.
        1 => At { ms: i64 },
    }
}

impl Deadline {
    /// Returns the first timestamp at which the key is expired, for a transaction at `at`.
    pub(crate) fn resolve(self, at: Timestamp) -> Timestamp {
        let (origin, ms) = match self {
            Self::After { ms } => (at.as_ns(), ms),
            Self::At { ms } => (0, ms),
        };
        Timestamp::from_ns(origin.saturating_add_signed(ms.saturating_mul(NS_PER_MS)))
    }
}

coded! {
    /// Whether `Expire` changes the expiry, depending on the present one. A key without an expiry
    /// counts as expiring infinitely late.
    #[derive(Copy)]
    enum ExpireCondition {
        0 => Always,
        1 => IfNone,
        2 => IfSome,
        3 => IfLater,
        4 => IfEarlier,
        5 => IfSomeAndLater,
        6 => IfSomeAndEarlier,
    }
}

coded! {
    /// The unit in which a time is returned.
    #[derive(Copy)]
    enum TimeUnit {
        0 => Seconds,
        1 => Milliseconds,
    }
}

coded! {
    /// An end of a list.
    #[derive(Copy)]
    enum End {
        0 => Left,
        1 => Right,
    }
}

coded! {
    /// An operation on sets.
    #[derive(Copy)]
    enum Combination {
        0 => Intersection,
        1 => Union,
        2 => Difference,
    }
}

/// Which scores a sorted set accepts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AddRule {
    /// Whether a member must be new or present.
    pub condition: Condition,
    /// How the score of a present member may change.
    pub direction: Direction,
}

coded! {
    /// How a score may change.
    #[derive(Copy)]
    enum Direction {
        0 => Any,
        1 => Up,
        2 => Down,
    }
}

impl Field for AddRule {
    fn put(&self, out: &mut Vec<u8>) {
        self.condition.put(out);
        self.direction.put(out);
    }

    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self { condition: Field::take(reader)?, direction: Field::take(reader)? })
    }
}

/// A range of a sorted set.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SortedRange {
    pub selection: Selection,
    /// Whether members are counted and returned from the highest score on.
    pub is_reverse: bool,
    /// Number of members to skip and to return (negative: all that follow).
    pub limit: Option<(i64, i64)>,
}

coded! {
    /// Which members of a sorted set are selected.
    enum Selection {
        0 => Index { start: i64, stop: i64 },
        1 => Score { min: Bound, max: Bound },
    }
}

impl Field for SortedRange {
    fn put(&self, out: &mut Vec<u8>) {
        self.selection.put(out);
        self.is_reverse.put(out);
        self.limit.put(out);
    }

    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        let (selection, is_reverse) = Field::take(reader)?;
        Some(Self { selection, is_reverse, limit: Field::take(reader)? })
    }
}

/// A limit of a range of scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Bound {
    pub score: Score,
    /// Whether the score itself is outside the range.
    pub is_exclusive: bool,
}

impl Field for Bound {
    fn put(&self, out: &mut Vec<u8>) {
        self.score.put(out);
        self.is_exclusive.put(out);
    }

    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        let (score, is_exclusive) = Field::take(reader)?;
        Some(Self { score, is_exclusive })
    }
}
