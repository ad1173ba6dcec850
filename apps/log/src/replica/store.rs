//! What a replica stores, and how it starts from that.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{Mono, ProcessId, Timestamp};

use crate::checkpoint::Checkpoint;
use crate::entries::{Accepted, Entries};
use crate::founding::{Founding, OwnLog, StoredLog};
use crate::record::{Change, Record};
use crate::replica::catch_up::CatchUp;
use crate::replica::{LogReplica, ReplicaOptions, Role};

/// What the disk of a replica has.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'a> {
    /// A checkpoint, and the number of the last record that it includes.
    pub checkpoint: Option<(u64, &'a [u8])>,
    /// The records behind.
    pub records: &'a [Record],
    /// Number of entries that the state includes; 0 without a state.
    pub applied: u64,
}

/// A replica cannot start with what its disk has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// A checkpoint is malformed.
    #[error("the checkpoint after record {0} is not one of a log: restore the replica from a peer")]
    Checkpoint(u64),
    /// A record contradicts those before.
    #[error("record {0} contradicts those before: restore the replica from a peer")]
    Record(u64),
    /// The state is of a later time than the log.
    #[error(
        "the state includes {applied} entries, and the log has {len}: the log is an old copy, or \
         of another replica; replace the replica (`onepipe log replace`, \
         `onepipe block replace`)"
    )]
    StateAhead {
        /// Number of entries that the state includes.
        applied: u64,
        /// Number of entries of the log.
        len: u64,
    },
}

impl LogReplica {
    /// Restores a replica from what is stored. It serves nothing before [`LogReplica::rejoin`], if
    /// other replicas go on, or [`LogReplica::found`], if all have ended.
    ///
    /// # Errors
    /// What is stored contradicts itself.
    pub fn restore(
        process: ProcessId,
        replicas: BTreeSet<ProcessId>,
        options: ReplicaOptions,
        stored: Stored<'_>,
    ) -> Result<Self, RestoreError> {
        let mut replica = Self::new(process, replicas, options);
        let mut whole = None;
        if let Some((number, bytes)) = stored.checkpoint {
            let checkpoint = Checkpoint::parse(bytes);
            let Checkpoint { view, entries } =
                checkpoint.ok_or(RestoreError::Checkpoint(number))?;
            (replica.view, replica.entries, replica.recorded) = (view, entries, number);
            replica.has_stored_view = true;
        }
        for record in stored.records {
            let replayed = replica.replay(&record.change, &mut whole);
            replayed.ok_or(RestoreError::Record(record.number))?;
            replica.recorded = record.number;
        }
        replica.stored = replica.recorded;
        replica.restore_state(stored.applied)?;
        replica.recorded_committed = replica.entries.committed_len();
        let whole = whole.map(Box::new);
        replica.role = Role::CatchingUp(Box::new(CatchUp { whole, ..CatchUp::default() }));
        Ok(replica)
    }

    /// Notes what the state includes: committed entries only. A state that lacks entries which were
    /// trimmed is read from another replica.
    fn restore_state(&mut self, applied: u64) -> Result<(), RestoreError> {
        self.applied = applied;
        if applied < self.entries.base_len() {
            return Ok(());
        }
        let len = self.entries.len();
        let checksum = self.entries.checksum(applied);
        let checksum = checksum.ok_or(RestoreError::StateAhead { applied, len })?;
        let is_committed = self.entries.set_committed(applied, checksum);
        assert!(is_committed, "a log has its own checksums");
        Ok(())
    }

    /// Returns the encoded log of a member, and the number of the last record that it includes: it
    /// replaces all records up to that one. `None` while the replica catches up, or if the number
    /// would not exceed `after`, that of the last checkpoint.
    ///
    /// Entries that were not trimmed are on the disk already, so they are not included where the
    /// log can be restored from their records.
    pub fn checkpoint(&self, after: u64) -> Option<(u64, Vec<u8>)> {
        if self.role != Role::Member {
            return None;
        }
        let base_record = self.base_record();
        let number = base_record.unwrap_or(self.recorded);
        (number > after).then(|| match base_record {
            Some(_) => (number, Checkpoint::encode_base(&self.view, self.entries.base())),
            None => (number, Checkpoint::encode(&self.view, &self.entries)),
        })
    }

    /// Replays a stored change. `whole` is the log before the replica has begun to catch up.
    fn replay(&mut self, change: &Change, whole: &mut Option<Entries>) -> Option<()> {
        match change {
            // A checkpoint may include entries and commits of later records than its own number.
            Change::Entry(entry) if self.entries.base().last.is_some_and(|it| entry.id <= it) => {
                Some(())
            }
            Change::Committed(len) if *len <= self.entries.base_len() => Some(()),
            Change::Entry(entry) => {
                let accepted = self.entries.accept(entry.clone());
                (accepted == Accepted::New).then_some(())
            }
            Change::View(view, cut) => {
                (self.view, *whole) = (view.clone(), None);
                self.has_stored_view = true;
                self.entries.cut(cut).then_some(())
            }
            Change::Truncated(len) => {
                whole.get_or_insert_with(|| self.entries.clone());
                self.entries.truncate(*len).then_some(())
            }
            Change::Installed(base) => {
                whole.get_or_insert_with(|| self.entries.clone());
                self.entries = Entries::from_base(base.clone());
                Some(())
            }
            Change::Committed(len) => {
                let checksum = self.entries.checksum(*len)?;
                self.entries.set_committed(*len, checksum).then_some(())
            }
            Change::Restored => {
                self.entries = whole.take()?;
                Some(())
            }
        }
    }

    /// Returns what a replica that was just restored has of the log. One that has stored no view is
    /// new, or has begun to catch up after its disk was lost: its entries are a part of those that
    /// others have, and say nothing of what was committed.
    pub fn own_log(&self) -> OwnLog {
        match self.has_stored_view || makes(Mistake::LostLogStated) {
            true => OwnLog::Stored(self.stored_log()),
            false => OwnLog::Empty,
        }
    }

    /// Returns what is stored, of a replica that was just restored.
    pub fn stored_log(&self) -> StoredLog {
        let whole = match &self.role {
            Role::CatchingUp(catch_up) => catch_up.whole.as_deref(),
            Role::Member => None,
        };
        let entries = whole.unwrap_or(&self.entries);
        let (view, statement) = (self.view.clone(), entries.statement());
        StoredLog { view, statement, has_state: self.applied >= entries.base_len() }
    }

    /// Goes on after all replicas have ended, as they have agreed on at a timestamp: earlier ends
    /// are of previous incarnations. Returns false if this replica is no founder, or its log lacks
    /// what its statement had: then it rejoins.
    pub fn found(&mut self, at: Timestamp, founding: &Founding) -> bool {
        if !founding.view.members.contains(&self.process) {
            return false;
        }
        if let Role::CatchingUp(catch_up) = &mut self.role
            && let Some(whole) = catch_up.whole.take()
        {
            self.entries = *whole;
            self.record(Change::Restored);
        }
        if !self.entries.cut(&founding.cut) {
            return false;
        }
        let (len, checksum) = (founding.cut.len(), founding.cut.checksum());
        if !self.entries.set_committed(len, checksum) {
            return false;
        }
        self.view = founding.view.clone();
        self.since = self.view.members.iter().map(|member| (*member, at)).collect();
        self.role = Role::Member;
        // A state may include later entries than those that it had made durable.
        self.consistent_len = len;
        self.record(Change::View(self.view.clone(), founding.cut.clone()));
        self.begin_progress();
        true
    }

    /// Begins to catch up from other replicas, as this process has started again or was excluded.
    /// What others may not have is removed.
    pub fn rejoin(&mut self, now: Mono) {
        self.now = now;
        let stable_len = self.entries.stable_len();
        let is_truncated = self.entries.truncate(stable_len);
        assert!(is_truncated, "stable entries exist");
        self.record(Change::Truncated(stable_len));
        self.round = None;
        self.failed.clear();
        self.waiting.clear();
        self.replies.clear();
        self.unsent.clear();
        self.state_reads.clear();
        self.role = Role::CatchingUp(Box::default());
        self.read();
    }

    pub(super) fn record(&mut self, change: Change) {
        self.recorded += 1;
        if self.options.is_durable {
            if let (Change::Entry(entry), Role::Member) = (&change, &self.role) {
                self.recorded_entries.push_back((self.recorded, entry.id));
            }
            self.records.push_back(Record { number: self.recorded, change });
        } else {
            self.stored = self.recorded;
        }
    }

    /// Returns the next change to be stored, if the replica is durable.
    pub fn poll_record(&mut self) -> Option<Record> {
        self.records.pop_front()
    }

    /// Notes that all records up to this number survive a loss of power: replies and statements
    /// that depend on them may be sent.
    pub fn on_stored(&mut self, number: u64) {
        self.stored = self.stored.max(number.min(self.recorded));
        self.advance();
    }
}
