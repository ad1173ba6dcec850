//! The rounds of each protocol.

/// How FaRM executes transactions that only read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FarmReads {
    /// In one round, as the evaluation of 1Pipe describes it. Not serializable if they concern
    /// several servers.
    OneRound,
    /// With a round that validates the versions, if they concern several servers.
    Validated,
}

/// A protocol: the rounds of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// No concurrency control.
    NonTx,
    /// Optimistic, with locks on written rows and validated reads.
    Farm(FarmReads),
    /// Two-phase locking and two-phase commit.
    TwoPhaseLocking,
    /// Validation of versions at the first phase of two-phase commit.
    Optimistic,
}

/// What a server does in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(crate) enum Action {
    /// Executes the part without concurrency control.
    Execute = 0,
    /// Reads values and versions, unless a row is locked for writing.
    Read = 1,
    /// Locks the rows that the part writes, unless a version that was read has changed.
    LockWrites = 2,
    /// Locks all rows that the part uses, and reads.
    LockAll = 3,
    /// Checks that no version that was read has changed.
    Validate = 4,
    /// Replicates that the transaction is prepared.
    Prepare = 5,
    /// Locks all rows that the part uses, unless a version that was read has changed, and
    /// replicates that the transaction is prepared.
    ValidateAndPrepare = 6,
    /// Executes the part.
    Commit = 7,
    /// Executes the part, and releases the locks.
    CommitAndUnlock = 8,
    /// Releases the locks.
    Unlock = 9,
    /// Releases the locks of a transaction that is not executed.
    Abort = 10,
}

impl Action {
    const ALL: [Self; 11] = [
        Self::Execute,
        Self::Read,
        Self::LockWrites,
        Self::LockAll,
        Self::Validate,
        Self::Prepare,
        Self::ValidateAndPrepare,
        Self::Commit,
        Self::CommitAndUnlock,
        Self::Unlock,
        Self::Abort,
    ];

    /// Returns the action of an encoded byte.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte)).copied()
    }

    /// Whether a server may hold locks after the action.
    pub fn locks(self) -> bool {
        matches!(self, Self::LockWrites | Self::LockAll | Self::ValidateAndPrepare)
    }
}

/// Which shards take part in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Shards {
    /// The shards whose parts read.
    Reads,
    /// The shards whose parts write.
    Writes,
    /// All shards of the transaction.
    All,
}

/// A round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Round {
    pub action: Action,
    pub shards: Shards,
}

const fn round(action: Action, shards: Shards) -> Round {
    Round { action, shards }
}

const EXECUTE: &[Round] = &[round(Action::Execute, Shards::All)];
const READ: &[Round] = &[round(Action::Read, Shards::All)];
const READ_VALIDATED: &[Round] =
    &[round(Action::Read, Shards::All), round(Action::Validate, Shards::All)];
const FARM_WRITE: &[Round] = &[
    round(Action::LockWrites, Shards::Writes),
    round(Action::Commit, Shards::Writes),
    round(Action::Unlock, Shards::Writes),
];
const FARM_READ_WRITE: &[Round] = &[
    round(Action::Read, Shards::Reads),
    round(Action::LockWrites, Shards::Writes),
    round(Action::Validate, Shards::Reads),
    round(Action::CommitAndUnlock, Shards::Writes),
];
const LOCKING_READ: &[Round] =
    &[round(Action::LockAll, Shards::All), round(Action::Unlock, Shards::All)];
const LOCKING_WRITE: &[Round] = &[
    round(Action::LockAll, Shards::All),
    round(Action::Prepare, Shards::Writes),
    round(Action::CommitAndUnlock, Shards::All),
];
const OPTIMISTIC_WRITE: &[Round] = &[
    round(Action::Read, Shards::All),
    round(Action::ValidateAndPrepare, Shards::All),
    round(Action::CommitAndUnlock, Shards::All),
];

impl Protocol {
    /// Returns the rounds of a transaction that `reads` and `writes` as given, on this number of
    /// shards.
    pub(crate) fn rounds(self, (reads, writes): (bool, bool), shards: usize) -> &'static [Round] {
        match (self, reads, writes) {
            (Self::NonTx, ..) => EXECUTE,
            // One server reads everything at one moment.
            (Self::Farm(_) | Self::Optimistic, _, false) if shards == 1 => READ,
            (Self::Farm(FarmReads::OneRound), _, false) => READ,
            (Self::Farm(_) | Self::Optimistic, _, false) => READ_VALIDATED,
            (Self::Farm(_), false, true) => FARM_WRITE,
            (Self::Farm(_), true, true) => FARM_READ_WRITE,
            (Self::TwoPhaseLocking, _, false) => LOCKING_READ,
            (Self::TwoPhaseLocking, _, true) => LOCKING_WRITE,
            (Self::Optimistic, _, true) => OPTIMISTIC_WRITE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_have_the_bytes_of_their_numbers() {
        for action in Action::ALL {
            assert_eq!(Action::from_byte(action as u8), Some(action));
        }
        assert_eq!(Action::from_byte(Action::ALL.len() as u8), None);
    }

    #[test]
    fn farm_has_the_round_trips_of_the_paper() {
        let farm = Protocol::Farm(FarmReads::OneRound);
        let rounds = |reads, writes| farm.rounds((reads, writes), 2).len();
        assert_eq!([rounds(true, false), rounds(false, true), rounds(true, true)], [1, 3, 4]);
    }
}
