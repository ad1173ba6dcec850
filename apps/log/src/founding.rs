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
        "process {} was a member of the last known view and has not started: later entries may be \
         in its log alone; start that replica, too",
        .0.0
    )]
    Missing(ProcessId),
    /// No member of the last view has the state.
    #[error("no replica has both the log and the state that includes what was trimmed from it")]
    NoState,
}

impl Founding {
    /// Returns how the log goes on, from what all replicas that have started have stored.
    ///
    /// An entry was committed in a view only if all members of this view have stored the view. So
    /// members of the last view that have not stored it say nothing, and join again. If a later
    /// view than the last one known here had committed an entry, one of its members would be a
    /// member of the last one here, and would have stored that view.
    pub fn of<'a>(stored: &'a BTreeMap<ProcessId, StoredLog>) -> Result<Self, FoundingError> {
        let mut last = &stored.values().next().ok_or(FoundingError::NoReplica)?.view;
        for log in stored.values() {
            last = if log.view.supersedes(last) { &log.view } else { last };
        }
        let missing = last.members.iter().find(|member| !stored.contains_key(*member));
        if let Some(missing) = missing {
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
        let view = View { number: last.number + 1, members };
        Ok(Self { view, cut: cut.ok_or(FoundingError::NoReplica)? })
    }
}
