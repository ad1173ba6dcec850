//! Parts of an evaluation, so that several processes share its runs.

use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use thiserror::Error;

use crate::experiment::Task;

/// One of several parts: every `count`-th run, beginning with that of index `index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Index of the part, below `count`.
    index: usize,
    /// Number of parts.
    count: usize,
}

/// Why a text is no shard.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("a shard is I/N with I from 0 to N - 1, for example 0/8")]
pub struct ShardError;

impl Shard {
    /// Returns the tasks of this part. Equal tasks are one run, of one part; all parts together
    /// have all tasks.
    pub fn of(self, tasks: &[Task]) -> Vec<Task> {
        let mut seen = BTreeSet::new();
        let distinct = tasks.iter().filter(|task| seen.insert(task.key()));
        distinct.skip(self.index).step_by(self.count).cloned().collect()
    }

    /// Returns the name of the file with the runs of this part.
    pub fn file_name(self) -> String {
        format!("shard-{}-of-{}.jsonl", self.index, self.count)
    }
}

impl FromStr for Shard {
    type Err = ShardError;

    fn from_str(text: &str) -> Result<Self, ShardError> {
        let (index, count) = text.split_once('/').ok_or(ShardError)?;
        let index = index.parse().map_err(|_| ShardError)?;
        let count = count.parse().map_err(|_| ShardError)?;
        (index < count).then_some(Self { index, count }).ok_or(ShardError)
    }
}

impl Display for Shard {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.index, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_have_every_task_once() {
        let task = |interval_ns| Task::BeaconCores { interval_ns };
        // Two figures may need the same run.
        let tasks: Vec<Task> = (0..23).chain(5..9).map(task).collect();
        for count in [1, 2, 7, 40] {
            let all = (0..count).flat_map(|index| Shard { index, count }.of(&tasks));
            let mut keys: Vec<String> = all.map(|task| task.key()).collect();
            keys.sort();
            let mut expected: Vec<String> = (0..23).map(|ns| task(ns).key()).collect();
            expected.sort();
            assert_eq!(keys, expected, "{count} shards");
        }
    }

    #[test]
    fn refuses_what_is_no_shard() {
        assert_eq!("1/8".parse(), Ok(Shard { index: 1, count: 8 }));
        for text in ["8/8", "1", "1/0", "0/0", "-1/8", "a/8", "1/8/2", ""] {
            assert_eq!(text.parse::<Shard>(), Err(ShardError), "{text}");
        }
    }
}
