//! What a replica stores, which replies wait for that, and how it executes records again.

use alloc::vec::Vec;

use onepipe_base::Timestamp;
use onepipe_base::mistake::{Mistake, makes};

use crate::State;
use crate::members::Members;
use crate::recovery::Record;
use crate::replica::Replica;
use crate::request::Request;
use crate::sessions::{Admission, Outcome, Sessions};

impl<S: State> Replica<S> {
    /// Adds an executed write to the feeds and, if the replica is durable, to what is to be stored.
    pub(super) fn record(&mut self, record: Record) {
        self.feeds.iter_mut().for_each(|feed| feed.push(&record));
        if self.options.is_durable {
            self.records.push_back(record);
        }
    }

    /// Returns the number of the last record that is not stored, and that a read may have seen
    /// whose results are exact from `from` on; 0 if there is none. So a read waits for the disk
    /// only if what it has read is not stored yet.
    pub(super) fn seen_record(&self, from: Option<Timestamp>) -> u64 {
        let Some(from) = from else { return 0 };
        let later = self.unstored.partition_point(|(at, _)| *at <= from);
        later.checked_sub(1).map_or(0, |seen| self.unstored[seen].1)
    }

    /// Returns the next executed write to be stored, if the replica is durable.
    pub fn poll_record(&mut self) -> Option<Record> {
        self.records.pop_front()
    }

    /// Notes that replies that depend on the records up to this number may be sent.
    pub fn on_written(&mut self, number: u64) {
        self.written = self.written.max(number.min(self.recorded));
    }

    /// Notes that all records up to this number survive a loss of power. Replies that depend on
    /// them may be sent.
    pub fn on_stored(&mut self, number: u64) {
        self.on_written(number);
        let stored = self.unstored.partition_point(|(_, record)| *record <= number);
        self.unstored.drain(..stored);
    }

    /// Returns the timestamp below which all writes to the shard are stored: those at or above may
    /// be missing after a loss of power. `None` if nothing is known.
    ///
    /// Writes are executed and stored in one order, so all before the first one that is not stored
    /// are. Others at the same timestamp may precede it or follow it, so that timestamp itself is
    /// excluded. If all that was executed is stored, writes below the commit barrier are: none of
    /// them can arrive any more. The commit barrier rises without writes, so a shard that is only
    /// read does not hold the others up. A replica that catches up has stored nothing.
    pub fn stored_below(&self) -> Option<Timestamp> {
        if self.catch_up.is_some() {
            return None;
        }
        let unstored = self.unstored.front().filter(|_| !makes(Mistake::StoredWhenExecuted));
        unstored.map(|(at, _)| *at).or(self.barrier)
    }

    /// Executes a stored record again, after a restart, without a reply. The next record has the
    /// next number.
    pub fn replay(&mut self, record: &Record) {
        self.execute_again(record);
        self.written = record.number;
    }

    pub(super) fn execute_again(&mut self, record: &Record) {
        self.recorded = record.number;
        if let Some(members) = &record.members {
            self.members.merge(members);
        }
        let Some(request) = Request::parse(&record.request) else { return };
        let Some(part) = request.part(self.shard) else { return };
        let id = (record.from, request.session);
        // A write that was recorded was executed, whatever the client had finished by then: that
        // may have been learnt from a write that was refused, which has no record.
        let admission = self.sessions.admit(id, request.number, request.finished);
        if matches!(admission, Admission::Execute | Admission::Refuse) {
            let (at, mut results) = (record.at, Vec::new());
            self.state.execute(at, part, &mut results);
            self.executed = Some((at, record.from));
            let outcome = Outcome { at, results, record: record.number };
            self.sessions.executed(id, request.number, outcome);
        }
    }

    /// Begins a run with these members, after all stored records were executed again. The sessions
    /// of clients are dropped, as they would accumulate, and so is the previous membership, as all
    /// replicas have started again. A client that goes on ends its unfinished writes with an error.
    pub fn begin_run(&mut self, members: Members) {
        (self.sessions, self.members) = (Sessions::default(), members);
        self.has_new_members = true;
    }

    /// Returns the membership, as far as the replica knows.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// Returns the number of the last executed write.
    pub fn recorded(&self) -> u64 {
        self.recorded
    }
}
