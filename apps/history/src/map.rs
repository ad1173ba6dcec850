//! Linearizability of a map whose operations depend on whether their key is there.

use std::collections::BTreeMap;

use crate::search::{Action, Search, Step, Stuck};
use crate::verdict::{Anomaly, AnomalyKind, Verdict};

/// Limit on the steps of the search for one key.
const STEPS_MAX: u64 = 5_000_000;
/// A counterexample lists this number of calls, the last ones that were applied.
const LISTED_MAX: usize = 5;
/// The state of a key that is not there.
const MISSING: u32 = 0;

/// An operation of a map, with its result if that is known. A call whose result is unknown may take
/// effect at any later time, or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MapOperation {
    /// Returned this value, or found no key.
    LookUp(Option<i64>),
    /// Inserts a value if the key is not there: whether it was inserted.
    Insert(i64, Option<bool>),
    /// Replaces the value if the key is there: whether it was replaced.
    Update(i64, Option<bool>),
    /// Removes the key if it is there: whether it was removed.
    Delete(Option<bool>),
}

/// A call of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MapCall {
    /// The key.
    pub key: u64,
    /// The operation.
    pub operation: MapOperation,
    /// Position of its begin among the begins and ends of all calls.
    pub begins: usize,
    /// Position of its end; `None` if it has not ended, or its result is unknown.
    pub ends: Option<usize>,
}

/// The numbers of the values of a key.
#[derive(Default)]
struct Values(BTreeMap<i64, u32>);

impl Values {
    fn state(&mut self, value: i64) -> u32 {
        let next = self.0.len() as u32 + 1;
        *self.0.entry(value).or_insert(next)
    }

    fn actions(&mut self, operation: MapOperation) -> Vec<Action> {
        match operation {
            MapOperation::LookUp(None) | MapOperation::Delete(Some(false)) => {
                vec![Action::Read(MISSING)]
            }
            MapOperation::LookUp(Some(value)) => vec![Action::Read(self.state(value))],
            MapOperation::Insert(_, Some(false)) => vec![Action::Exists],
            MapOperation::Update(_, Some(false)) => vec![Action::Read(MISSING)],
            MapOperation::Insert(value, Some(true) | None) => {
                vec![Action::Read(MISSING), Action::Write(self.state(value))]
            }
            MapOperation::Update(value, Some(true) | None) => {
                vec![Action::Exists, Action::Write(self.state(value))]
            }
            MapOperation::Delete(Some(true) | None) => {
                vec![Action::Exists, Action::Write(MISSING)]
            }
        }
    }
}

/// Checks that for each key one order of the calls, in which each takes effect between its begin
/// and its end, explains all results. The map is empty at first.
pub fn map_linearizability(calls: &[MapCall]) -> Verdict {
    let mut of_key: BTreeMap<u64, Vec<&MapCall>> = BTreeMap::new();
    for call in calls {
        of_key.entry(call.key).or_default().push(call);
    }
    let (mut anomalies, mut undecided) = (Vec::new(), None);
    for (key, calls) in of_key {
        let mut values = Values::default();
        let steps = calls.iter().map(|call| Step {
            actions: values.actions(call.operation),
            begins: call.begins,
            ends: call.ends.unwrap_or(usize::MAX),
        });
        let steps: Vec<Step> = steps.collect();
        let mut apply = |state: u32, action: &Action| match action {
            Action::Write(written) => Some(*written),
            Action::Read(expected) => (*expected == state).then_some(state),
            Action::Exists => (state != MISSING).then_some(state),
            Action::Append(_) => None,
        };
        match Search::new(&steps, STEPS_MAX).run(&mut apply) {
            Ok(()) => {}
            Err(Stuck::Limit) => {
                undecided = Some(format!("key {key}: no result after {STEPS_MAX} steps"));
            }
            Err(Stuck::At { blocked, applied, .. }) => {
                anomalies.push(explain(key, &calls, blocked, &applied));
            }
        }
    }
    match undecided {
        Some(reason) if anomalies.is_empty() => Verdict::Undecided(reason),
        _ => Verdict::of(anomalies),
    }
}

fn explain(key: u64, calls: &[&MapCall], blocked: usize, applied: &[usize]) -> Anomaly {
    let recent = &applied[applied.len().saturating_sub(LISTED_MAX)..];
    let mut explanation = format!(
        "key {key}: after {} calls in the longest possible order, no order explains\n  {:?}",
        applied.len(),
        calls[blocked]
    );
    if !recent.is_empty() {
        explanation += "\nthe last calls of that order are";
    }
    for index in recent {
        explanation += &format!("\n  {:?}", calls[*index]);
    }
    let mut transactions = vec![calls[blocked].ends.unwrap_or(calls[blocked].begins)];
    transactions.extend(recent.iter().map(|index| calls[*index].begins));
    Anomaly { kind: AnomalyKind::NotLinearizable, transactions, explanation }
}

#[cfg(test)]
mod tests {
    use super::MapOperation::{Delete, Insert, LookUp, Update};
    use super::*;

    fn call(operation: MapOperation, begins: usize, ends: usize) -> MapCall {
        MapCall { key: 1, operation, begins, ends: Some(ends) }
    }

    #[test]
    fn accepts_what_one_order_explains() {
        let calls = [
            call(LookUp(None), 0, 1),
            call(Insert(5, Some(true)), 2, 5),
            // Both orders of this look-up and the insertion are possible.
            call(LookUp(Some(5)), 3, 4),
            call(Insert(6, Some(false)), 6, 7),
            call(Update(7, Some(true)), 8, 9),
            call(LookUp(Some(7)), 10, 11),
            call(Delete(Some(true)), 12, 13),
            call(Update(8, Some(false)), 14, 15),
            call(Delete(Some(false)), 16, 17),
            // A deleted key can be inserted again, with a value that it had before.
            call(Insert(5, Some(true)), 18, 19),
            call(LookUp(Some(5)), 20, 21),
        ];
        assert_eq!(map_linearizability(&calls), Verdict::Valid);
    }

    #[test]
    fn an_unknown_result_is_that_of_a_later_call_or_of_none() {
        let insert = MapCall { key: 1, operation: Insert(5, None), begins: 0, ends: None };
        let found = [insert, call(LookUp(None), 1, 2), call(LookUp(Some(5)), 3, 4)];
        assert!(map_linearizability(&found).is_valid());
        let never = [insert, call(LookUp(None), 1, 2), call(Insert(6, Some(true)), 3, 4)];
        assert!(map_linearizability(&never).is_valid());
        let lost = [insert, call(LookUp(Some(5)), 1, 2), call(LookUp(None), 3, 4)];
        assert!(!map_linearizability(&lost).is_valid(), "what was found is not lost");
    }

    #[test]
    fn refuses_wrong_results() {
        let inserted = call(Insert(5, Some(true)), 0, 1);
        for wrong in [
            LookUp(None),
            LookUp(Some(6)),
            Insert(6, Some(true)),
            Update(6, Some(false)),
            Delete(Some(false)),
        ] {
            let verdict = map_linearizability(&[inserted, call(wrong, 2, 3)]);
            assert_eq!(verdict.kinds(), [AnomalyKind::NotLinearizable], "{wrong:?}");
        }
        let missing = [call(Insert(5, Some(false)), 0, 1)];
        assert!(!map_linearizability(&missing).is_valid(), "nothing is there at first");
        // Other keys do not matter.
        let other = MapCall { key: 2, ..call(LookUp(None), 2, 3) };
        assert!(map_linearizability(&[inserted, other]).is_valid());
    }
}
