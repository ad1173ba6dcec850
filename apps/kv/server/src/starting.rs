//! The replica of a node until it serves or catches up.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use onepipe::{ProcessId, Timestamp};
use onepipe_transaction::{
    CatchUpOptions, Members, OwnLog, Phase, Placement, Replica, Role, Start, State,
};

use crate::options::NodeOptions;
use crate::storage::{CutOff, ReplicaLog};

/// Interval in which a node repeats the messages of its start, in ns.
const START_INTERVAL_NS: u64 = 50_000_000;
/// Longest time that a node waits for a clock that is behind the last write of a log.
pub(crate) const CLOCK_WAIT: Duration = Duration::from_secs(2);
/// Limit on the records of other logs that are executed between two turns of the pipe.
const EXECUTED_MAX: usize = 256;

/// What a node holds when it has joined the fabric.
pub(crate) enum Held<S> {
    /// No replica.
    Nothing,
    /// A replica, and its log if it has one.
    Replica(Box<Replica<S>>, Option<Box<ReplicaLog>>),
    /// A replica that does not serve yet, and its log if it has one.
    Starting(Box<Starting<S>>, Option<Box<ReplicaLog>>),
}

/// Removes the records from a timestamp on from the log of a replica of a shard. What is received,
/// when that is done, is the replica without these records.
pub(crate) type Cut<S> = fn(&mut ReplicaLog, u16, Timestamp) -> Result<Receiver<CutOff<S>>, String>;

/// A replica that does not serve yet.
pub(crate) struct Starting<S> {
    pub start: Start,
    process: ProcessId,
    placement: Placement,
    timeout_ns: u64,
    /// The replica, which has executed what its log holds. `None` once it was taken.
    replica: Option<Replica<S>>,
    /// Removes void records from the log.
    cut: Cut<S>,
    /// Receives the replica without void records, while these are removed from the log.
    rebuilt: Option<(Timestamp, Receiver<CutOff<S>>)>,
    /// The session in which void records were removed from the log, and from which timestamp on.
    cut_in: Option<(u64, Timestamp)>,
    /// Since when the clock has been behind the last write of any log.
    behind_since: Option<Timestamp>,
    /// The last session in which the replica was ready for the opening.
    ready_in: Option<u64>,
}

impl<S: State> Starting<S> {
    /// Begins the start of `process` in `session`. `replica` has executed what `own` holds.
    pub fn new(
        (process, session): (ProcessId, u64),
        options: &NodeOptions,
        (replica, own): (Replica<S>, OwnLog),
        cut: Cut<S>,
    ) -> Self {
        let placement = options.placement.clone();
        Self {
            start: Start::new(process, session, &placement, own, START_INTERVAL_NS),
            process,
            placement,
            timeout_ns: options.client.timeout_ns,
            replica: Some(replica),
            cut,
            rebuilt: None,
            cut_in: None,
            behind_since: None,
            ready_in: None,
        }
    }

    /// Prepares the replica for the opening as far as that can be done now. Returns whether there
    /// was something to do.
    ///
    /// # Errors
    /// Why the node must end: a shard has no whole log, or the log cannot be read or written.
    pub fn advance(
        &mut self,
        log: Option<&mut ReplicaLog>,
        now: Timestamp,
    ) -> Result<bool, Arc<str>> {
        match self.start.phase() {
            Phase::Lost(lost) => Err(lost.to_string().into()),
            Phase::Founds(Some(Role::CatchUp)) => Ok(self.set_ready()),
            Phase::Founds(Some(Role::Complete { before: Some(before) }))
                if self.cut_in != Some((self.start.session(), before)) =>
            {
                log.map_or(Ok(false), |log| self.cut(log, before)).map_err(Arc::from)
            }
            Phase::Founds(Some(Role::Complete { .. })) => {
                self.complete(log, now).map_err(Arc::from)
            }
            Phase::Unknown | Phase::Founds(None) | Phase::Opened(..) | Phase::Joins => Ok(false),
        }
    }

    fn set_ready(&mut self) -> bool {
        let session = Some(self.start.session());
        if self.ready_in == session {
            return false;
        }
        self.ready_in = session;
        self.start.set_ready();
        true
    }

    /// Removes void records from the log, and from the replica.
    fn cut(&mut self, log: &mut ReplicaLog, before: Timestamp) -> Result<bool, String> {
        let Some((removed_from, rebuilt)) = &self.rebuilt else {
            let shard = self.replica.as_ref().map_or(0, Replica::shard);
            tracing::warn!(
                before = before.as_ns(),
                "the replica had been declared failed: later records are void, and are removed"
            );
            self.rebuilt = Some((before, (self.cut)(log, shard, before)?));
            return Ok(true);
        };
        if log.writer()?.is_none() {
            return Ok(false);
        }
        let (replica, own) = rebuilt.try_recv().map_err(|_| "the log was not read again")?;
        self.cut_in = Some((self.start.session(), *removed_from));
        self.start.set_own(own);
        (self.replica, self.rebuilt) = (Some(replica), None);
        Ok(true)
    }

    /// Executes and stores what only other logs hold. The replica is ready once all of that is on
    /// the disk, and the clock is past the last write of any log.
    fn complete(&mut self, log: Option<&mut ReplicaLog>, now: Timestamp) -> Result<bool, String> {
        let Some(replica) = &mut self.replica else { return Ok(false) };
        let mut log = match log {
            Some(log) => log.writer()?,
            None => None,
        };
        let mut executed = 0;
        while executed < EXECUTED_MAX
            && let Some(mut record) = self.start.next_missing()
        {
            record.number = replica.recorded() + 1;
            replica.replay(&record);
            if let Some(log) = &mut log {
                let failed = |error| format!("the log cannot be written: {error}");
                log.append(&record).map_err(failed)?;
            }
            executed += 1;
        }
        if executed > 0 || !self.start.is_log_complete() {
            return Ok(executed > 0);
        }
        let is_stored = log.is_none_or(|log| log.store_all());
        // Writes of the run must have higher timestamps than any record.
        let last = self.start.roles().and_then(|roles| roles.last).map(|(last, _)| last);
        let behind = last.filter(|last| now <= *last);
        let since = behind.map(|_| *self.behind_since.get_or_insert(now));
        if let (Some(last), Some(since)) = (behind, since)
            && Duration::from_nanos(now.since_ns(since)) > CLOCK_WAIT
        {
            let behind = Duration::from_nanos(last.since_ns(now));
            return Err(format!(
                "the clock is {behind:?} behind the last write of another log: set the clock, and                  start again"
            ));
        }
        Ok(is_stored && behind.is_none() && self.set_ready())
    }

    /// Returns the replica, once, when it is to serve or to catch up.
    pub fn take_replica(&mut self) -> Option<Replica<S>> {
        let (opened, role) = match self.start.phase() {
            Phase::Opened(at, role) => (Some(at), role),
            Phase::Joins => (None, Role::CatchUp),
            Phase::Unknown | Phase::Founds(_) | Phase::Lost(_) => return None,
        };
        let members = self.start.roles().map(|roles| roles.members.clone());
        let mut members = members.unwrap_or_default();
        if let Some(at) = opened {
            members.on_opened(at);
        }
        let replica = self.replica.take()?;
        let mut replica = match role {
            Role::Complete { .. } => self.serve(replica, members),
            Role::CatchUp => self.catch_up(replica, &members),
        };
        replica.set_founders(self.start.session(), self.start.founders());
        for (process, at) in self.start.ends() {
            replica.on_process_ended(process, at);
        }
        Some(replica)
    }

    fn serve(&self, mut replica: Replica<S>, members: Members) -> Replica<S> {
        tracing::info!(run = members.run(), "the store starts");
        replica.begin_run(members);
        replica.with_placement(self.process, self.placement.clone())
    }

    fn catch_up(&self, replica: Replica<S>, members: &Members) -> Replica<S> {
        tracing::info!("catching up from another replica");
        let options = CatchUpOptions::new(self.start.session(), self.timeout_ns);
        replica.into_returning(self.process, self.placement.clone(), members, options)
    }
}
