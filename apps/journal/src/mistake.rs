//! Mistakes that a test can switch on, to prove that the crash test detects them.

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// Records are reported durable without `fdatasync`.
    DurableBeforeSync,
    /// The directory is not synchronised after a snapshot was renamed.
    RenameNotSynced,
    /// The directory is not synchronised after a segment was created.
    CreateNotSynced,
    /// The old snapshot is removed before the new one is durable.
    OldSnapshotFirst,
    /// A record is accepted whatever precedes it.
    Unchained,
    /// After a failed `fdatasync` the next one counts for all that was written before.
    SyncTriedAgain,
    /// A full segment is not synchronised before the next one begins.
    RollNotSynced,
    /// What a crash of the process left unsynchronised is reported durable when it is opened.
    OpenNotSynced,
    /// The end of the log is not written again when it is opened.
    EndNotRewritten,
}

/// Returns whether this thread makes `mistake`: never outside tests.
#[cfg(not(test))]
pub(crate) const fn makes(_mistake: Mistake) -> bool {
    false
}

#[cfg(test)]
pub(crate) use switch::{make, makes};

#[cfg(test)]
mod switch {
    use std::cell::Cell;

    use super::Mistake;

    thread_local! {
        static MADE: Cell<Option<Mistake>> = const { Cell::new(None) };
    }

    /// Returns whether this thread makes `mistake`.
    pub(crate) fn makes(mistake: Mistake) -> bool {
        MADE.get() == Some(mistake)
    }

    /// Makes this thread make `mistake` from now on.
    pub(crate) fn make(mistake: Option<Mistake>) {
        MADE.set(mistake);
    }
}
