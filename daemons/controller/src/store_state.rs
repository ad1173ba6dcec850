//! The state of the store, for reports.

use std::time::Instant;

/// What the store worker knows about the store.
#[derive(Clone, Debug)]
pub(crate) struct StoreState {
    /// The error of the last call.
    pub(crate) error: Option<String>,
    /// Since when calls have been succeeding, or failing.
    pub(crate) since: Instant,
    /// Number of calls.
    pub(crate) calls: u64,
    /// Number of failed calls.
    pub(crate) failures: u64,
}

impl StoreState {
    pub(crate) fn new() -> Self {
        Self { error: None, since: Instant::now(), calls: 0, failures: 0 }
    }

    /// Records the result of a call. Returns what has changed.
    pub(crate) fn record(&mut self, error: Option<String>) -> StateChange {
        self.calls += 1;
        self.failures += u64::from(error.is_some());
        if self.error.is_some() != error.is_some() {
            self.since = Instant::now();
        }
        if self.error == error {
            return StateChange::None;
        }
        self.error.clone_from(&error);
        error.map_or(StateChange::Recovered, StateChange::Failed)
    }

    /// Whether the last call succeeded.
    pub(crate) fn is_available(&self) -> bool {
        self.calls > 0 && self.error.is_none()
    }
}

/// What a call has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StateChange {
    /// The state is as before the call.
    None,
    /// The store has failed, or its error has changed.
    Failed(String),
    /// The store works again.
    Recovered,
}
