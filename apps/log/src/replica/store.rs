//! What a replica stores, and how it starts from that.

use alloc::collections::BTreeSet;

use onepipe_base::{Mono, ProcessId};

use crate::entries::{Accepted, Entries};
use crate::founding::{Founding, StoredLog};
use crate::record::{Change, Record};
use crate::replica::catch_up::CatchUp;
use crate::replica::{LogReplica, ReplicaOptions, Role};

impl LogReplica {
    /// Restores a replica from its stored records. It serves nothing before
    /// [`LogReplica::rejoin`], if other replicas go on, or [`LogReplica::found`], if all have
    /// ended. Returns `None` if the records contradict each other.
    pub fn restore<'a>(
        process: ProcessId,
        replicas: BTreeSet<ProcessId>,
        options: ReplicaOptions,
        records: impl IntoIterator<Item = &'a Record>,
    ) -> Option<Self> {
        let mut replica = Self::new(process, replicas, options);
        let mut is_truncated = false;
        for record in records {
            is_truncated = match &record.change {
                Change::Truncated(_) => true,
                Change::View(..) => false,
                Change::Entry(_) => is_truncated,
            };
            match &record.change {
                Change::Entry(entry) => {
                    if replica.entries.accept(entry.clone()) != Accepted::New {
                        return None;
                    }
                }
                Change::View(view, cut) => {
                    replica.view = view.clone();
                    if !replica.entries.cut(cut) {
                        return None;
                    }
                }
                Change::Truncated(0) => replica.entries = Entries::default(),
                Change::Truncated(len) => {
                    let checksum = replica.entries.checksum(*len)?;
                    if !replica.entries.set_stable(*len, checksum) {
                        return None;
                    }
                    replica.entries.drop_unstable();
                }
            }
            replica.recorded = record.number;
        }
        replica.stored = replica.recorded;
        replica.role = Role::CatchingUp(CatchUp { is_truncated, ..CatchUp::default() });
        Some(replica)
    }

    /// Returns what is stored, of a replica that was just restored.
    pub fn stored_log(&self) -> StoredLog {
        let is_whole = !matches!(&self.role, Role::CatchingUp(one) if one.is_truncated);
        let statement = is_whole.then(|| self.entries.statement());
        StoredLog { view: self.view.clone(), statement }
    }

    /// Goes on after all replicas have ended, as they have agreed on. Returns false if this replica
    /// is no founder, or its log lacks what its statement had: then it rejoins.
    pub fn found(&mut self, founding: &Founding) -> bool {
        if !founding.view.members.contains(&self.process) || !self.entries.cut(&founding.cut) {
            return false;
        }
        let (len, checksum) = (founding.cut.len(), founding.cut.checksum());
        if !self.entries.set_committed(len, checksum) {
            return false;
        }
        self.view = founding.view.clone();
        self.role = Role::Member;
        self.record(Change::View(self.view.clone(), founding.cut.clone()));
        true
    }

    /// Begins to catch up from other replicas, as this process has started again or was excluded.
    /// What others may not have is removed.
    pub fn rejoin(&mut self, now: Mono) {
        self.now = now;
        self.entries.drop_unstable();
        self.record(Change::Truncated(self.entries.len()));
        self.round = None;
        self.failed.clear();
        self.waiting.clear();
        self.replies.clear();
        self.unsent.clear();
        self.role = Role::CatchingUp(CatchUp::default());
        self.read();
    }

    pub(super) fn record(&mut self, change: Change) {
        self.recorded += 1;
        if self.options.is_durable {
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
