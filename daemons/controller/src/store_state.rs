//! How the store is, for people.

use std::time::Instant;

/// What the clerk has seen of the store.
#[derive(Clone, Debug)]
pub(crate) struct StoreState {
    /// Why it has not done what it was asked for last.
    pub(crate) error: Option<String>,
    /// Since when it has been answering, or has not.
    pub(crate) since: Instant,
    /// Calls made.
    pub(crate) calls: u64,
    /// Of these, how many it has not done.
    pub(crate) failures: u64,
}

impl StoreState {
    pub(crate) fn new() -> Self {
        Self { error: None, since: Instant::now(), calls: 0, failures: 0 }
    }

    /// Whether it has answered, and done what it was asked for last.
    pub(crate) fn is_available(&self) -> bool {
        self.calls > 0 && self.error.is_none()
    }
}
