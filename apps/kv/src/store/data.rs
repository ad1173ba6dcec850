//! The value of a key: one of five types.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use onepipe_base::Timestamp;

use crate::score::Score;
use crate::value::Value;

/// An operation that failed. It is displayed as an error reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failure(pub &'static str);

/// The result of an operation.
pub(super) type Reply = Result<Value, Failure>;

pub(super) const WRONG_TYPE: Failure =
    Failure("WRONGTYPE Operation against a key holding the wrong kind of value");
pub(super) const NO_KEY: Failure = Failure("ERR no such key");
pub(super) const NOT_INTEGER: Failure = Failure("ERR value is not an integer or out of range");
pub(super) const NOT_FLOAT: Failure = Failure("ERR value is not a valid float");
pub(super) const OVERFLOW: Failure = Failure("ERR increment or decrement would overflow");
pub(super) const TOO_LONG: Failure =
    Failure("ERR string exceeds maximum allowed size (proto-max-bulk-len)");

/// Maximum length of a string, in bytes, as in Redis.
pub(super) const STRING_LEN_MAX: usize = 512 << 20;

/// A key's value with what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Entry {
    pub data: Data,
    /// Timestamp of the last transaction that changed the value or its expiry.
    pub version: Timestamp,
    /// First timestamp at which the key is expired.
    pub expiry: Option<Timestamp>,
}

pub(super) type Text = Vec<u8>;
pub(super) type Hash = BTreeMap<Vec<u8>, Vec<u8>>;
pub(super) type Set = BTreeSet<Vec<u8>>;
pub(super) type List = VecDeque<Vec<u8>>;

/// Members with scores, in both orders.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct SortedSet {
    scores: BTreeMap<Vec<u8>, Score>,
    order: BTreeSet<(Score, Vec<u8>)>,
}

impl SortedSet {
    pub(super) fn score(&self, member: &[u8]) -> Option<Score> {
        self.scores.get(member).copied()
    }

    /// Returns the members by their names.
    pub(super) fn scores(&self) -> &BTreeMap<Vec<u8>, Score> {
        &self.scores
    }

    /// Returns the members by their scores, and those of one score by their names.
    pub(super) fn order(&self) -> &BTreeSet<(Score, Vec<u8>)> {
        &self.order
    }

    pub(super) fn len(&self) -> usize {
        self.scores.len()
    }

    /// Sets the score of a member, and returns its previous one.
    pub(super) fn insert(&mut self, member: Vec<u8>, score: Score) -> Option<Score> {
        let previous = self.scores.insert(member.clone(), score);
        if let Some(previous) = previous {
            self.order.remove(&(previous, member.clone()));
        }
        self.order.insert((score, member));
        previous
    }

    /// Removes a member, and returns whether it was there.
    pub(super) fn remove(&mut self, member: &[u8]) -> bool {
        let Some((member, score)) = self.scores.remove_entry(member) else { return false };
        self.order.remove(&(score, member))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Data {
    Text(Text),
    Hash(Hash),
    Set(Set),
    List(List),
    SortedSet(SortedSet),
}

impl Data {
    /// Returns the name of the type, as in the reply to `TYPE`.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Text(_) => "string",
            Self::Hash(_) => "hash",
            Self::Set(_) => "set",
            Self::List(_) => "list",
            Self::SortedSet(_) => "zset",
        }
    }
}

/// One of the types of a value.
pub(super) trait Kind: Default {
    fn of(data: &Data) -> Option<&Self>;
    fn of_mut(data: &mut Data) -> Option<&mut Self>;
    fn into_data(self) -> Data;
    /// Returns whether the value is an empty collection. A key with one is removed.
    fn is_void(&self) -> bool;
}

macro_rules! kind {
    ($type:ty, $variant:ident, $is_void:expr) => {
        impl Kind for $type {
            fn of(data: &Data) -> Option<&Self> {
                match data {
                    Data::$variant(value) => Some(value),
                    _ => None,
                }
            }

            fn of_mut(data: &mut Data) -> Option<&mut Self> {
                match data {
                    Data::$variant(value) => Some(value),
                    _ => None,
                }
            }

            fn into_data(self) -> Data {
                Data::$variant(self)
            }

            fn is_void(&self) -> bool {
                let is_void: fn(&Self) -> bool = $is_void;
                is_void(self)
            }
        }
    };
}

// An empty string is a value.
kind!(Text, Text, |_| false);
kind!(Hash, Hash, Hash::is_empty);
kind!(Set, Set, Set::is_empty);
kind!(List, List, List::is_empty);
kind!(SortedSet, SortedSet, |set| set.scores.is_empty());

/// Returns the positions of a range of a sequence of `len` elements, of which negative ones count
/// from the end; `None` if the range is empty.
pub(super) fn positions(start: i64, stop: i64, len: usize) -> Option<(usize, usize)> {
    let len = i64::try_from(len).ok()?;
    let from_front = |index: i64| if index < 0 { index.saturating_add(len) } else { index };
    let (start, stop) = (from_front(start).max(0), from_front(stop).min(len - 1));
    (start <= stop).then_some((usize::try_from(start).ok()?, usize::try_from(stop).ok()?))
}

/// Returns the position of an element, of which a negative one counts from the end.
pub(super) fn position(index: i64, len: usize) -> Option<usize> {
    let len = i64::try_from(len).ok()?;
    let index = if index < 0 { index.saturating_add(len) } else { index };
    (0..len).contains(&index).then_some(usize::try_from(index).ok()?)
}
