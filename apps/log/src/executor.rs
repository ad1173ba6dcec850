//! Runs a state beside a replica.

use alloc::string::String;

use onepipe_base::mistake::{Mistake, makes};

use crate::replica::{Install, LogReplica};
use crate::state::State;

/// Entries that are applied in one call.
const APPLIED_MAX: usize = 256;

/// Applies the committed entries of a replica to its state, and exchanges the state with other
/// replicas. Its driver calls [`Executor::advance`] after each event of the replica.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Executor<S> {
    state: S,
    /// Number of entries that the state includes.
    applied: u64,
}

impl<S: State> Executor<S> {
    /// Takes a state that was just opened.
    pub fn new(state: S) -> Self {
        let applied = state.durable_len();
        Self { state, applied }
    }

    /// Returns the number of entries that the state includes.
    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// Returns the state.
    pub fn state(&self) -> &S {
        &self.state
    }

    /// Returns the state, to use what is its own.
    pub fn state_mut(&mut self) -> &mut S {
        &mut self.state
    }

    /// Returns whether the state may be read: it is that of a member, and includes all that the
    /// replica has to have applied.
    pub fn is_current(&self, replica: &LogReplica) -> bool {
        replica.is_whole() && self.applied >= replica.consistent_len()
    }

    /// Begins to make durable what was applied.
    pub fn begin_sync(&mut self) {
        self.state.begin_sync();
    }

    /// Returns why the state cannot go on, if it cannot.
    pub fn failure(&self) -> Option<String> {
        self.state.failure()
    }

    /// Does what there is to do. Returns whether there was something.
    pub fn advance(&mut self, replica: &mut LogReplica) -> bool {
        let has_installed = self.install(replica);
        let has_applied = self.apply(replica);
        let mut has_read = false;
        while let Some(read) = replica.poll_state_read() {
            has_read = true;
            let part = self.state.read_part(&read.part);
            replica.on_part(&read, part);
        }
        let is_early = makes(Mistake::AppliedBeforeStore);
        replica.on_applied(if is_early { self.applied } else { self.state.durable_len() });
        has_installed || has_applied || has_read
    }

    fn install(&mut self, replica: &mut LogReplica) -> bool {
        let mut has_installed = false;
        while let Some(install) = replica.poll_install() {
            has_installed = true;
            match install {
                Install::Part { since, cursor, bytes } => {
                    self.state.install_part(since, cursor, &bytes);
                }
                Install::Finish(len) => {
                    self.state.finish_install(len);
                    self.state.begin_sync();
                    self.applied = len;
                }
            }
        }
        has_installed
    }

    fn apply(&mut self, replica: &LogReplica) -> bool {
        let before = self.applied;
        let until = replica.applicable_len().min(before.saturating_add(APPLIED_MAX as u64));
        // An entry applied between the parts would undo what they have of later ones.
        while !replica.is_installing()
            && self.applied < until
            && let Some(entry) = replica.entry(self.applied)
        {
            self.state.apply(self.applied, entry);
            self.applied += 1;
        }
        self.applied > before
    }
}
