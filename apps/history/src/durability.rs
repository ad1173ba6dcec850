//! Durability: the final state has all acknowledged writes, and nothing that was not written.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::event::{Found, Key, Operation};
use crate::history::{History, KeyKind, Outcome, Transaction};
use crate::values::Writers;
use crate::verdict::{Anomaly, AnomalyKind, Verdict};

/// What each key held after the last transaction had ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FinalReads {
    found: BTreeMap<Key, Found>,
}

impl FromIterator<(Key, Found)> for FinalReads {
    fn from_iter<I: IntoIterator<Item = (Key, Found)>>(reads: I) -> Self {
        Self { found: reads.into_iter().collect() }
    }
}

impl FinalReads {
    /// Returns the final reads of a history: those of committed transactions that were invoked
    /// after every event of a transaction that writes.
    pub fn of(history: &History) -> Self {
        let writes = |one: &&Transaction| one.operations.iter().any(|op| op.written().is_some());
        let writing = history.transactions().iter().filter(writes);
        let last = writing.map(|one| one.completed.unwrap_or(one.invoked)).max();
        let is_final = |one: &&Transaction| {
            one.outcome == Outcome::Ok && last.is_none_or(|last| one.invoked > last)
        };
        let operations = history.transactions().iter().filter(is_final).flat_map(|one| {
            one.operations.iter().filter_map(|operation| match operation {
                Operation::Read { key, found } => Some((key.clone(), found.clone())),
                Operation::Append { .. } | Operation::Write { .. } => None,
            })
        });
        operations.collect()
    }

    /// Returns whether no key was read.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    fn holds(&self, key: &Key, value: i64) -> bool {
        match self.found.get(key) {
            Some(Found::List(elements)) => elements.contains(&value),
            Some(Found::Value(found)) => *found == value,
            Some(Found::Nil) | None => false,
        }
    }
}

/// Checks that each list contains at the end every element whose append was acknowledged, none of a
/// failed transaction, none twice and none that was never appended; that a transaction of unknown
/// outcome took effect in all lists or in none; and that each register holds the value of a write
/// that did not fail and that no acknowledged write certainly followed.
///
/// A key with acknowledged writes and without a final read counts as empty.
pub fn durability(history: &History, at_end: &FinalReads) -> Verdict {
    let writers = match Writers::new(history) {
        Ok(writers) => writers,
        Err(reason) => return Verdict::Undecided(reason),
    };
    let check = Check { history, at_end, writers };
    let mut anomalies = Vec::new();
    for (key, found) in &at_end.found {
        check.check_found(key, found, &mut anomalies);
    }
    check.check_lists(&mut anomalies);
    check.check_registers(&mut anomalies);
    Verdict::of(anomalies)
}

struct Check<'h> {
    history: &'h History,
    at_end: &'h FinalReads,
    writers: Writers<'h>,
}

fn anomaly(kind: AnomalyKind, transaction: &Transaction, what: String) -> Anomaly {
    let explanation = format!("{what}: {}", transaction.describe());
    Anomaly { kind, transactions: vec![transaction.number()], explanation }
}

impl Check<'_> {
    /// Checks that everything found was written, by a transaction that did not fail, and once.
    fn check_found(&self, key: &Key, found: &Found, anomalies: &mut Vec<Anomaly>) {
        let values = match found {
            Found::Nil => &[][..],
            Found::List(elements) => elements,
            Found::Value(value) => std::slice::from_ref(value),
        };
        let mut seen = HashSet::new();
        for value in values {
            let Some(writer) = self.writers.get(key, *value) else {
                anomalies.push(Anomaly {
                    kind: AnomalyKind::Phantom,
                    transactions: Vec::new(),
                    explanation: format!("key {key} holds {value}, which no transaction wrote"),
                });
                continue;
            };
            if !seen.insert(*value) {
                let what = format!("list {key} holds {value} more than once");
                anomalies.push(anomaly(AnomalyKind::Duplicate, writer, what));
            }
            if writer.outcome == Outcome::Fail {
                let what = format!("key {key} holds {value} of a transaction that failed");
                anomalies.push(anomaly(AnomalyKind::G1a, writer, what));
            }
        }
    }

    /// Checks that no acknowledged append is missing and no transaction took effect in part.
    fn check_lists(&self, anomalies: &mut Vec<Anomaly>) {
        let held: BTreeMap<&Key, HashSet<i64>> = self
            .at_end
            .found
            .iter()
            .filter_map(|(key, found)| match found {
                Found::List(elements) => Some((key, elements.iter().copied().collect())),
                Found::Nil | Found::Value(_) => None,
            })
            .collect();
        let holds =
            |key: &Key, element: i64| held.get(key).is_some_and(|list| list.contains(&element));
        for transaction in self.history.transactions() {
            let appends = || {
                transaction.operations.iter().filter_map(|operation| match operation {
                    Operation::Append { key, element } => Some((key, *element)),
                    Operation::Write { .. } | Operation::Read { .. } => None,
                })
            };
            let is_partial = appends().any(|(key, element)| holds(key, element));
            let kind = match transaction.outcome {
                Outcome::Ok => AnomalyKind::Lost,
                Outcome::Info if is_partial => AnomalyKind::Torn,
                Outcome::Info | Outcome::Fail => continue,
            };
            for (key, element) in appends().filter(|(key, element)| !holds(key, *element)) {
                let what = format!("list {key} does not hold {element} at the end");
                anomalies.push(anomaly(kind, transaction, what));
            }
        }
    }

    /// Checks that no register holds a value from before an acknowledged write.
    fn check_registers(&self, anomalies: &mut Vec<Anomaly>) {
        // For each register, the acknowledged write that was invoked last.
        let mut last: BTreeMap<&Key, (&Transaction, i64)> = BTreeMap::new();
        let acknowledged =
            self.history.transactions().iter().filter(|one| one.outcome == Outcome::Ok);
        for transaction in acknowledged {
            for operation in &transaction.operations {
                if let Operation::Write { key, value } = operation {
                    last.insert(key, (transaction, *value));
                }
            }
        }
        let registers: BTreeSet<&Key> = last.keys().copied().collect();
        for key in registers {
            let (newest, value) = last[key];
            let found = self.at_end.found.get(key).unwrap_or(&Found::Nil);
            let is_before = match found {
                Found::Value(found) => {
                    // A value without a writer has been reported as a phantom already.
                    let writer = self.writers.get(key, *found);
                    writer.is_some_and(|writer| writer.ends() < newest.invoked)
                }
                Found::Nil | Found::List(_) => true,
            };
            if is_before && !self.at_end.holds(key, value) {
                debug_assert_eq!(self.history.kinds().get(key), Some(&KeyKind::Register));
                let what = format!("register {key} holds {found} at the end, without {value}");
                anomalies.push(anomaly(AnomalyKind::Lost, newest, what));
            }
        }
    }
}
