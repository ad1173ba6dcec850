//! Writers of values, and anomalies of single values that `adya` does not look for.

use std::collections::{BTreeSet, HashMap};

use crate::event::{Found, Key, Operation};
use crate::history::{History, Outcome, Transaction};
use crate::verdict::{Anomaly, AnomalyKind};

/// The transaction that wrote each value.
pub(crate) struct Writers<'h> {
    history: &'h History,
    of: HashMap<(&'h Key, i64), usize>,
}

impl<'h> Writers<'h> {
    /// Returns the writers, or the first value that two operations wrote to one key.
    pub(crate) fn new(history: &'h History) -> Result<Self, String> {
        let mut of = HashMap::new();
        for (index, transaction) in history.transactions().iter().enumerate() {
            for operation in &transaction.operations {
                let Some(value) = operation.written() else { continue };
                let key = operation.key();
                if of.insert((key, value), index).is_some() {
                    return Err(format!("{value} was written to key {key} more than once"));
                }
            }
        }
        Ok(Self { history, of })
    }

    /// Returns the transaction that wrote `value` to `key`.
    pub(crate) fn get(&self, key: &Key, value: i64) -> Option<&'h Transaction> {
        self.index(key, value).map(|index| &self.history.transactions()[index])
    }

    fn index(&self, key: &Key, value: i64) -> Option<usize> {
        self.of.get(&(key, value)).copied()
    }

    /// Returns the indices of the transactions of unknown outcome of which another, committed
    /// transaction has observed a value: they have committed, too.
    pub(crate) fn observed(&self) -> BTreeSet<usize> {
        let mut observed = BTreeSet::new();
        for (_, key, value) in observations(self.history) {
            let index = self.index(key, value);
            observed.extend(
                index.filter(|at| self.history.transactions()[*at].outcome == Outcome::Info),
            );
        }
        observed
    }

    /// Returns the reads of values that no transaction wrote.
    pub(crate) fn phantoms(&self) -> Vec<Anomaly> {
        let mut anomalies = Vec::new();
        for (reader, key, value) in observations(self.history) {
            if self.index(key, value).is_none() {
                let reason = format!("{} observed {value}", reader.describe());
                anomalies.push(Anomaly {
                    kind: AnomalyKind::Phantom,
                    transactions: vec![reader.number()],
                    explanation: format!("{reason}, which no transaction wrote to key {key}"),
                });
            }
        }
        anomalies
    }
}

/// Returns the committed transactions that read from a register what they wrote to it only
/// afterwards. `adya` looks for such reads of lists alone.
pub(crate) fn future_reads(history: &History) -> impl Iterator<Item = Anomaly> {
    let committed = history.transactions().iter().filter(|one| one.outcome == Outcome::Ok);
    committed.flat_map(|transaction| {
        let operations = transaction.operations.iter().enumerate();
        operations.filter_map(move |(at, operation)| {
            let Operation::Read { key, found: Found::Value(value) } = operation else {
                return None;
            };
            let write = Operation::Write { key: key.clone(), value: *value };
            let is_later = transaction.operations[at..].contains(&write);
            let described = transaction.describe();
            is_later.then(|| Anomaly {
                kind: AnomalyKind::FutureRead,
                transactions: vec![transaction.number()],
                explanation: format!("{described} read {value} before it wrote that to key {key}"),
            })
        })
    })
}

/// Returns every value that a committed transaction read.
fn observations(history: &History) -> impl Iterator<Item = (&Transaction, &Key, i64)> {
    let committed = history.transactions().iter().filter(|one| one.outcome == Outcome::Ok);
    let reads = committed.flat_map(|transaction| {
        transaction.operations.iter().map(move |operation| (transaction, operation))
    });
    reads.flat_map(|(transaction, operation)| {
        let (key, values) = match operation {
            Operation::Read { key, found: Found::List(elements) } => (key, elements.as_slice()),
            Operation::Read { key, found: Found::Value(value) } => {
                (key, std::slice::from_ref(value))
            }
            other => (other.key(), &[][..]),
        };
        values.iter().map(move |value| (transaction, key, *value))
    })
}
