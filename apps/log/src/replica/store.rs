//! What a replica stores, and how it starts from that.

use alloc::boxed::Box;
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
        let mut whole = None;
        for record in records {
            replica.replay(&record.change, &mut whole)?;
            replica.recorded = record.number;
        }
        replica.stored = replica.recorded;
        let whole = whole.map(Box::new);
        replica.role = Role::CatchingUp(CatchUp { whole, ..CatchUp::default() });
        Some(replica)
    }

    /// Replays a stored change. `whole` is the log before the replica has begun to catch up.
    fn replay(&mut self, change: &Change, whole: &mut Option<Entries>) -> Option<()> {
        match change {
            Change::Entry(entry) => {
                let accepted = self.entries.accept(entry.clone());
                (accepted == Accepted::New).then_some(())
            }
            Change::View(view, cut) => {
                (self.view, *whole) = (view.clone(), None);
                self.entries.cut(cut).then_some(())
            }
            Change::Truncated(len) => {
                whole.get_or_insert_with(|| self.entries.clone());
                if *len == 0 {
                    self.entries = Entries::default();
                    return Some(());
                }
                let checksum = self.entries.checksum(*len)?;
                let is_equal = self.entries.set_stable(*len, checksum);
                self.entries.drop_unstable();
                is_equal.then_some(())
            }
            Change::Restored => {
                self.entries = whole.take()?;
                Some(())
            }
        }
    }

    /// Returns what is stored, of a replica that was just restored.
    pub fn stored_log(&self) -> StoredLog {
        let whole = match &self.role {
            Role::CatchingUp(catch_up) => catch_up.whole.as_deref(),
            Role::Member => None,
        };
        let statement = whole.unwrap_or(&self.entries).statement();
        StoredLog { view: self.view.clone(), statement }
    }

    /// Goes on after all replicas have ended, as they have agreed on. Returns false if this replica
    /// is no founder, or its log lacks what its statement had: then it rejoins.
    pub fn found(&mut self, founding: &Founding) -> bool {
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
