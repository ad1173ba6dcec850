//! The replica of a node before the store is open.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use onepipe::{ProcessId, Timestamp};
use onepipe_transaction::{
    CatchUpOptions, LogSummary, Members, OwnLog, Phase, Placement, Replica, Role, Start, State,
};

use crate::options::NodeOptions;
use crate::storage::{CutOff, ReplicaLog};

/// How often a node states how far its start has come, in ns.
const START_INTERVAL_NS: u64 = 50_000_000;
/// Number of records of others that are executed between two turns of the pipe.
const EXECUTED_MAX: usize = 256;

/// What a node holds when it has joined the fabric.
pub(crate) enum Held<S> {
    /// No replica.
    Nothing,
    /// A replica, and its log if it has one.
    Replica(Box<Replica<S>>, Option<Box<ReplicaLog>>),
    /// A replica that starts with the others, or catches up, and its log if it has one.
    Starting(Box<Starting<S>>, Option<Box<ReplicaLog>>),
}

/// Removes the records from a timestamp on from the log of a shard, and returns the replica without
/// them when that is done.
pub(crate) type Cut<S> = fn(&mut ReplicaLog, u16, Timestamp) -> Result<Receiver<CutOff<S>>, String>;

/// A replica that does not serve yet.
pub(crate) struct Starting<S> {
    pub start: Start,
    process: ProcessId,
    placement: Placement,
    timeout_ns: u64,
    /// The replica, which has executed what its log holds.
    replica: Option<Replica<S>>,
    cut: Cut<S>,
    /// The replica without void records, while they are removed from the log.
    rebuilt: Option<Receiver<CutOff<S>>>,
    /// The session in which they were removed.
    cut_in: Option<u64>,
    /// The session in which the replica was ready to serve.
    ready_in: Option<u64>,
    /// Which processes have ended since the node has joined, and when.
    ended: Vec<(ProcessId, Timestamp)>,
}

impl<S: State> Starting<S> {
    /// Begins a session. `replica` has executed what `own` holds.
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
            ready_in: None,
            ended: Vec::new(),
        }
    }

    /// Notes that a process has ended.
    pub fn on_process_ended(&mut self, process: ProcessId, at: Timestamp) {
        self.start.on_process_ended(process, at);
        self.ended.push((process, at));
    }

    /// Prepares the replica to serve as far as that can be done now. Returns whether there was
    /// something to do, or why the node must end.
    pub fn advance(
        &mut self,
        log: Option<&mut ReplicaLog>,
        now: Timestamp,
    ) -> Result<bool, Arc<str>> {
        match self.start.phase() {
            Phase::Lost(lost) => Err(lost.to_string().into()),
            Phase::Founds(Some(Role::CatchUp)) => Ok(self.set_ready()),
            Phase::Founds(Some(Role::Complete { before: Some(before) }))
                if self.cut_in != Some(self.start.session()) =>
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

    /// Removes void records from the log.
    fn cut(&mut self, log: &mut ReplicaLog, before: Timestamp) -> Result<bool, String> {
        let Some(rebuilt) = &self.rebuilt else {
            let shard = self.replica.as_ref().map_or(0, Replica::shard);
            tracing::warn!(
                before = before.as_ns(),
                "the replica had been declared failed: later records are void, and are removed"
            );
            self.rebuilt = Some((self.cut)(log, shard, before)?);
            return Ok(true);
        };
        if log.writer()?.is_none() {
            return Ok(false);
        }
        let (replica, snapshot) = rebuilt.try_recv().map_err(|_| "the log was not read again")?;
        let (last, members) = (replica.executed_position(), replica.members().clone());
        let shard = replica.shard();
        self.start.set_own(LogSummary { shard, is_durable: true, snapshot, last, members });
        (self.replica, self.rebuilt) = (Some(replica), None);
        self.cut_in = Some(self.start.session());
        Ok(true)
    }

    /// Executes and stores what only others have.
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
        // What is written next must have a higher timestamp than what any log has.
        let last = self.start.roles().and_then(|roles| roles.last);
        Ok(is_stored && last.is_none_or(|(last, _)| now > last) && self.set_ready())
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
        // All founders were there when the store was opened.
        for (process, at) in self.ended.iter().filter(|(_, at)| Some(*at) >= opened) {
            replica.on_process_ended(*process, *at);
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
