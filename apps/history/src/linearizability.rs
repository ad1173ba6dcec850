//! Linearizability of each key.
//!
//! The operations of a transaction on one key act as one step. The states of the key are numbered,
//! so that a step compares numbers. A list only grows: up to the length of the longest read it must
//! be a prefix of that read. No read sees a longer state, so that all of these count as one.

use std::collections::HashMap;

use crate::event::{Found, Key, Operation};
use crate::history::{History, Outcome, Transaction};
use crate::search::{Action, Search, Step, Stuck};
use crate::verdict::{Anomaly, AnomalyKind, Verdict};

/// Limit on the steps of the search of [`linearizability`] for one key. The search remembers up to
/// this number of states, in up to 300 MB.
const STEPS_MAX: u64 = 5_000_000;

/// Checks that for each key one order of its operations, in which each takes effect between its
/// invocation and its completion, explains all results. An operation of unknown outcome may take
/// effect at any later time, or never.
pub fn linearizability(history: &History) -> Verdict {
    linearizability_with(history, STEPS_MAX)
}

/// Does what [`linearizability`] does, with at most `steps_max` steps of the search for each key.
/// The verdict is [`Verdict::Undecided`] if they do not suffice and no other key is violated.
pub fn linearizability_with(history: &History, steps_max: u64) -> Verdict {
    let mut of_key: HashMap<&Key, Vec<usize>> = HashMap::new();
    for (index, transaction) in history.transactions().iter().enumerate() {
        if transaction.outcome == Outcome::Fail {
            continue;
        }
        for operation in &transaction.operations {
            let indices = of_key.entry(operation.key()).or_default();
            if indices.last() != Some(&index) {
                indices.push(index);
            }
        }
    }
    let (mut anomalies, mut undecided) = (Vec::new(), None);
    let mut keys: Vec<_> = of_key.into_iter().collect();
    keys.sort_unstable();
    for (key, indices) in keys {
        let mut states = States::default();
        let transactions = indices.iter().map(|index| &history.transactions()[*index]);
        let mut steps: Vec<Step> =
            transactions.clone().map(|transaction| states.step(key, transaction)).collect();
        states.insert_reads(key, transactions.clone(), &mut steps);
        match Search::new(&steps, steps_max).run(&mut |state, action| states.apply(state, action)) {
            Ok(()) => {}
            Err(Stuck::Limit) => {
                undecided =
                    Some(format!("key {key}: no result after {steps_max} steps of the search"));
            }
            Err(Stuck::At { state, blocked, applied }) => {
                let transactions: Vec<&Transaction> = transactions.collect();
                let state = states.show(state);
                anomalies.push(explain(key, &transactions, blocked, &applied, &state));
            }
        }
    }
    match undecided {
        Some(reason) if anomalies.is_empty() => Verdict::Undecided(reason),
        _ => Verdict::of(anomalies),
    }
}

/// A counterexample lists this number of operations, the last ones that were applied.
const LISTED_MAX: usize = 5;

fn explain(
    key: &Key,
    transactions: &[&Transaction],
    blocked: usize,
    applied: &[usize],
    state: &str,
) -> Anomaly {
    let recent = &applied[applied.len().saturating_sub(LISTED_MAX)..];
    let mut explanation = format!(
        "key {key} holds {state} after {} operations in the longest possible order, but then no \
         order explains\n  {}",
        applied.len(),
        transactions[blocked].describe()
    );
    if !recent.is_empty() {
        explanation += "\nthe last operations of that order are";
    }
    for index in recent {
        explanation += &format!("\n  {}", transactions[*index].describe());
    }
    let mut numbers = vec![transactions[blocked].number()];
    numbers.extend(recent.iter().map(|index| transactions[*index].number()));
    Anomaly { kind: AnomalyKind::NotLinearizable, transactions: numbers, explanation }
}

/// The initial state: no list, no register.
const NIL: u32 = 0;
/// The state that a read expects until [`States::insert_reads`] has numbered it. No step leads to
/// this state.
const NEVER: u32 = u32::MAX;
/// Every state of a list that is longer than the longest read.
const BEYOND: u32 = u32::MAX - 1;

/// The states of one key that occur in the search.
#[derive(Default)]
struct States {
    /// The state that an append to a list leads to.
    appended: HashMap<(u32, i64), u32>,
    /// The state of a register with this value.
    written: HashMap<i64, u32>,
    /// Length of the longest read of a list. The states `1..=longest` are its prefixes.
    longest: u32,
    /// For each numbered state but [`NIL`]: the previous state of a list, and the last value.
    origins: Vec<(Option<u32>, i64)>,
}

impl States {
    fn push(&mut self, previous: Option<u32>, value: i64) -> u32 {
        self.origins.push((previous, value));
        self.origins.len() as u32
    }

    fn append(&mut self, state: u32, element: i64) -> u32 {
        if let Some(next) = self.appended.get(&(state, element)) {
            return *next;
        }
        let next = self.push(Some(state), element);
        self.appended.insert((state, element), next);
        next
    }

    fn write(&mut self, value: i64) -> u32 {
        if let Some(state) = self.written.get(&value) {
            return *state;
        }
        let state = self.push(None, value);
        self.written.insert(value, state);
        state
    }

    fn apply(&self, state: u32, action: &Action) -> Option<u32> {
        match action {
            Action::Append(_) if state >= self.longest => Some(BEYOND),
            Action::Append(element) => {
                let (_, next) = self.origins[state as usize];
                (next == *element).then_some(state + 1)
            }
            Action::Write(written) => Some(*written),
            Action::Read(expected) => (*expected == state).then_some(state),
            Action::Exists => (state != NIL).then_some(state),
        }
    }

    /// Returns the step of a transaction, whose reads expect [`NEVER`] so far.
    fn step(&mut self, key: &Key, transaction: &Transaction) -> Step {
        let of_key = transaction.operations.iter().filter(|operation| operation.key() == key);
        let actions = of_key.map(|operation| match operation {
            Operation::Append { element, .. } => Some(Action::Append(*element)),
            Operation::Write { value, .. } => Some(Action::Write(self.write(*value))),
            // The result of a read is unknown if the outcome is.
            Operation::Read { .. } if transaction.outcome != Outcome::Ok => None,
            Operation::Read { .. } => Some(Action::Read(NEVER)),
        });
        Step {
            actions: actions.flatten().collect(),
            begins: transaction.invoked,
            ends: transaction.ends(),
        }
    }

    /// Sets the states that the reads of the steps expect. Elements that a read of a list shares
    /// with the read before are not looked up again.
    fn insert_reads<'h>(
        &mut self,
        key: &Key,
        transactions: impl Iterator<Item = &'h Transaction> + Clone,
        steps: &mut [Step],
    ) {
        let mut path: (Vec<i64>, Vec<u32>) = (Vec::new(), vec![NIL]);
        let lists = transactions.clone().flat_map(|transaction| {
            let is_known = transaction.outcome == Outcome::Ok;
            transaction.operations.iter().filter_map(move |operation| match operation {
                Operation::Read { key: of, found: Found::List(elements) } => {
                    (is_known && of == key).then_some(elements)
                }
                _ => None,
            })
        });
        if let Some(longest) = lists.max_by_key(|elements| elements.len()) {
            self.longest = self.list(longest, &mut path);
        }
        for (transaction, step) in transactions.zip(steps) {
            let of_key = transaction.operations.iter().filter(|operation| operation.key() == key);
            let reads = of_key.filter_map(|operation| match operation {
                Operation::Read { found, .. } => Some(found),
                Operation::Append { .. } | Operation::Write { .. } => None,
            });
            let expected = step.actions.iter_mut().filter_map(|action| match action {
                Action::Read(expected) => Some(expected),
                Action::Append(_) | Action::Write(_) | Action::Exists => None,
            });
            for (found, expected) in reads.zip(expected) {
                *expected = match found {
                    Found::Nil => NIL,
                    Found::Value(value) => self.write(*value),
                    Found::List(elements) => self.list(elements, &mut path),
                };
            }
        }
    }

    /// Returns the state of a list with these elements. `known` and `states` are those of the last
    /// call: elements, and the state before each and after the last.
    fn list(&mut self, elements: &[i64], (known, states): &mut (Vec<i64>, Vec<u32>)) -> u32 {
        let shared = known.iter().zip(elements).take_while(|(a, b)| a == b).count();
        if shared == elements.len() {
            return states[shared];
        }
        known.truncate(shared);
        states.truncate(shared + 1);
        for element in &elements[shared..] {
            let next = self.append(states[known.len()], *element);
            known.push(*element);
            states.push(next);
        }
        states[known.len()]
    }

    fn show(&self, state: u32) -> String {
        if state == BEYOND {
            return format!("{} and more elements", self.show(self.longest));
        }
        let (mut values, mut at, mut is_list) = (Vec::new(), state, false);
        while at != NIL {
            let (previous, value) = self.origins[at as usize - 1];
            values.push(value);
            is_list |= previous.is_some();
            at = previous.unwrap_or(NIL);
        }
        values.reverse();
        match values.as_slice() {
            [] => Found::Nil.to_string(),
            [value] if !is_list => Found::Value(*value).to_string(),
            _ => Found::List(values).to_string(),
        }
    }
}
