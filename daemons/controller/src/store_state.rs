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

    /// Whether the last call succeeded.
    pub(crate) fn is_available(&self) -> bool {
        self.calls > 0 && self.error.is_none()
    }
}
