//! Where a log goes on after all replicas have ended at once.

use alloc::collections::{BTreeMap, BTreeSet};

use onepipe_base::ProcessId;

use crate::cut::{Cut, Statement};
use crate::view::View;

/// What a replica has stored.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StoredLog {
    /// The last view that is stored.
    pub view: View,
    /// What the log has, or had when the replica began to catch up.
    pub statement: Statement,
    /// The state includes all entries that were trimmed.
    pub has_state: bool,
}

/// What a replica that starts has of the log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OwnLog {
    /// What is stored.
    Stored(StoredLog),
    /// Nothing, or no view yet: the log is new, or the directory of the replica is lost.
    Empty,
    /// Nothing, and the operator has said so: the replica gets everything from the others.
    Replaced,
}

/// Views of a log that goes on without a replaced member have numbers from this much above the last
/// known one. So they supersede those that the lost disk may have, should it be found.
const REPLACED_STEP: u64 = 1 << 32;

/// The view with which a log goes on, and its entries.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Founding {
    /// The view.
    pub view: View,
    /// What its members retain.
    pub cut: Cut,
}

/// A log cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum FoundingError {
    /// No replica has started.
    #[error("no replica of the log has started")]
    NoReplica,
    /// A member of the last view is missing.
    #[error(
        "process {} was a member of the last known view and has not started with its log: later \
         entries may be there alone; start it with its directory or, if that is lost, after \
         `onepipe log replace` (for a block device `onepipe block replace`)",
        .0.0
    )]
    Missing(ProcessId),
    /// This replica has no log, although there is one.
    #[error(
        "process {} has no log, and others have one: start it with its directory or, if that is \
         lost, after `onepipe log replace` (for a block device `onepipe block replace`)",
        .0.0
    )]
    Lost(ProcessId),
    /// No member of the last view has the state.
    #[error("no replica has both the log and the state that includes what was trimmed from it")]
    NoState,
}

impl Founding {
    /// Returns how the log goes on, from what all replicas that have started have stored, without
    /// the `replaced` ones, whose disks are lost. That loses what was committed in a view of
    /// replaced ones only.
    ///
    /// An entry was committed in a view only if all members of this view have stored the view. So
    /// members of the last view that have not stored it say nothing, and join again. If a later
    /// view than the last one known here had committed an entry, one of its members would be a
    /// member of the last one here, and would have stored that view.
    pub fn of<'a>(
        stored: &'a BTreeMap<ProcessId, StoredLog>,
        replaced: &BTreeSet<ProcessId>,
    ) -> Result<Self, FoundingError> {
        let mut last = &stored.values().next().ok_or(FoundingError::NoReplica)?.view;
        for log in stored.values() {
            last = if log.view.supersedes(last) { &log.view } else { last };
        }
        let is_known =
            |member: &&ProcessId| stored.contains_key(*member) || replaced.contains(*member);
        if let Some(missing) = last.members.iter().find(|member| !is_known(member)) {
            return Err(FoundingError::Missing(*missing));
        }
        let of_last = |(process, log): (&ProcessId, &'a StoredLog)| {
            let is_of_last = log.view == *last && last.members.contains(process);
            is_of_last.then_some((*process, &log.statement))
        };
        let founders = stored.iter().filter_map(of_last);
        // A founder without the state catches up: its log says what was stored, all the same.
        let has_state = |process: &ProcessId| stored.get(process).is_some_and(|log| log.has_state);
        let members: BTreeSet<_> =
            founders.clone().map(|(process, _)| process).filter(has_state).collect();
        if members.is_empty() {
            return Err(FoundingError::NoState);
        }
        let cut = Cut::of(founders.map(|(_, statement)| statement));
        let step = if last.members.is_disjoint(replaced) { 1 } else { REPLACED_STEP };
        let view = View { number: last.number + step, members };
        Ok(Self { view, cut: cut.ok_or(FoundingError::NoReplica)? })
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn process(ids: &[u32]) -> BTreeSet<ProcessId> {
        ids.iter().copied().map(ProcessId).collect()
    }

    /// Logs without entries: of each process the members of its last view, with the number.
    fn founding(
        stored: &[(u32, u64, &[u32])],
        replaced: &[u32],
    ) -> Result<(u64, Vec<u32>), FoundingError> {
        let statement = crate::entries::Entries::default().statement();
        let log = |(id, number, members): &(u32, u64, &[u32])| {
            let view = View { number: *number, members: process(members) };
            (ProcessId(*id), StoredLog { view, statement: statement.clone(), has_state: true })
        };
        let founding = Founding::of(&stored.iter().map(log).collect(), &process(replaced))?;
        let members = founding.view.members.iter().map(|member| member.0).collect();
        Ok((founding.view.number, members))
    }

    #[test]
    fn goes_on_without_a_replaced_member_only() {
        let two: [(u32, u64, &[u32]); 2] = [(0, 3, &[0, 1, 2]), (2, 3, &[0, 1, 2])];
        assert_eq!(founding(&two, &[]), Err(FoundingError::Missing(ProcessId(1))));
        assert_eq!(founding(&two, &[1]), Ok((3 + REPLACED_STEP, [0, 2].to_vec())));
        // The others had gone on without it before.
        let without: [(u32, u64, &[u32]); 2] = [(0, 4, &[0, 2]), (2, 4, &[0, 2])];
        assert_eq!(founding(&without, &[1]), Ok((5, [0, 2].to_vec())));
        assert_eq!(founding(&[], &[0, 1, 2]), Err(FoundingError::NoReplica));
    }
}
