//! Transactions at a server.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use onepipe_transaction::SESSION_WINDOW;

use crate::keyed::KeyUse;
use crate::locks::{Locks, Owner, Scope};
use crate::message::{Outcome, Step};

/// A transaction of which a server has received requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Participant {
    /// Step of the last request.
    pub step: Step,
    /// Outcome of that request; `None` until it was sent.
    pub outcome: Option<Outcome>,
    /// Outcome of that request, to be sent as soon as all backups have the entry with this index.
    pub deferred: Option<(u64, Outcome)>,
    pub part: Option<Vec<u8>>,
    pub rows: Vec<KeyUse>,
    /// The version of each row when it was read; empty if the rows were not read.
    pub versions: Vec<u64>,
    /// Which rows are locked.
    pub held: Option<Scope>,
    /// Whether the log says that the transaction is prepared.
    pub is_prepared: bool,
}

impl Participant {
    pub fn new(step: Step) -> Self {
        Self {
            step,
            outcome: None,
            deferred: None,
            part: None,
            rows: Vec::new(),
            versions: Vec::new(),
            held: None,
            is_prepared: false,
        }
    }

    /// Whether the part writes.
    pub fn writes(&self) -> bool {
        self.rows.iter().any(|row| row.is_write)
    }

    /// Reads the versions of all rows. Returns false if one may be being written.
    pub fn read_versions(&mut self, locks: &Locks, owner: Owner) -> bool {
        let is_written = |row: &KeyUse| locks.is_written_by_other(row.key, owner);
        self.versions = self.rows.iter().map(|row| locks.version(row.key)).collect();
        !self.rows.iter().any(is_written)
    }

    /// Returns whether no version has changed since [`Participant::read_versions`], and no row is
    /// being written. Always true if the rows were not read.
    pub fn is_current(&self, locks: &Locks, owner: Owner) -> bool {
        let is_same = |(row, version): (&KeyUse, &u64)| {
            locks.version(row.key) == *version && !locks.is_written_by_other(row.key, owner)
        };
        self.rows.iter().zip(&self.versions).all(is_same)
    }

    /// Locks rows. Returns false if another transaction holds one.
    pub fn lock(&mut self, locks: &mut Locks, owner: Owner, scope: Scope) -> bool {
        let is_locked = self.held.is_none() && locks.lock(owner, &self.rows, scope);
        if is_locked {
            self.held = Some(scope);
        }
        is_locked
    }

    /// Releases the locked rows.
    pub fn unlock(&mut self, locks: &mut Locks) {
        if let Some(scope) = self.held.take() {
            locks.unlock(&self.rows, scope);
        }
    }
}

/// The transactions of a session of a client that may not have ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Session {
    finished: u64,
    pub open: BTreeMap<u64, Participant>,
}

impl Session {
    /// Notes that all transactions below `finished` have ended. Returns them.
    pub fn finish(&mut self, finished: u64) -> BTreeMap<u64, Participant> {
        if finished <= self.finished {
            return BTreeMap::new();
        }
        self.finished = finished;
        let later = self.open.split_off(&finished);
        core::mem::replace(&mut self.open, later)
    }

    /// Whether a transaction may still have requests.
    pub fn admits(&self, number: u64) -> bool {
        number.checked_sub(self.finished).is_some_and(|distance| distance < SESSION_WINDOW)
    }
}
