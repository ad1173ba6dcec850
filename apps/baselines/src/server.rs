//! A server: a replica of a shard, its primary or a backup.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use onepipe_base::{Mono, ProcessId, Timestamp};
use onepipe_transaction::Placement;

use crate::backup::Backup;
use crate::keyed::Keyed;
use crate::locks::{Locks, Owner, Scope};
use crate::log::Log;
use crate::message::{
    Ack, Change, Entry, Outcome, OutgoingMessage, Reply, Request, Step, ToServer,
};
use crate::participant::{Participant, Session};
use crate::protocol::Action;

/// Counters of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ServerStats {
    /// Executed parts.
    pub executed: u64,
    /// Requests that were refused, as another transaction holds a lock or has changed a version.
    pub conflicts: u64,
    /// Requests that had been executed before, and were answered again.
    pub repeated: u64,
    /// Entries of the log that were sent again.
    pub entries_repeated: u64,
    /// Messages that are malformed, or not for this server.
    pub malformed: u64,
}

/// A replica of a shard. Its driver passes each message to [`Server::on_message`], calls
/// [`Server::handle_timeout`] at [`Server::poll_timeout`], and sends what
/// [`Server::poll_message`] returns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server<S> {
    shard: u16,
    primary: ProcessId,
    is_primary: bool,
    state: S,
    locks: Locks,
    sessions: BTreeMap<(ProcessId, u64), Session>,
    log: Log,
    backup: Backup,
    /// Whether the primary is to be notified of the entries that this backup has.
    is_ack_due: bool,
    outbox: VecDeque<OutgoingMessage>,
    stats: ServerStats,
}

impl<S: Keyed> Server<S> {
    /// Creates the replica of `process` with its initial state. `timeout_min_ns` is the least time
    /// after which an entry of the log is sent again. `None` if the process has no replica.
    pub fn new(
        process: ProcessId,
        placement: &Placement,
        state: S,
        timeout_min_ns: u64,
    ) -> Option<Self> {
        let shard = placement.shard_of(process)?;
        let (primary, backups) = placement.replicas(shard).split_first()?;
        let is_primary = process == *primary;
        let backups = backups.iter().copied().filter(|_| is_primary);
        Some(Self {
            shard,
            primary: *primary,
            is_primary,
            state,
            locks: Locks::default(),
            sessions: BTreeMap::new(),
            log: Log::new(backups, timeout_min_ns),
            backup: Backup::default(),
            is_ack_due: false,
            outbox: VecDeque::new(),
            stats: ServerStats::default(),
        })
    }

    /// Handles a message. Anything that is not for this server is counted and dropped.
    pub fn on_message(&mut self, now: Mono, from: ProcessId, payload: &[u8]) {
        match ToServer::parse(payload) {
            Some(ToServer::Request(request)) => self.on_request(now, from, &request),
            Some(ToServer::Append(entry)) if from == self.primary => self.on_entry(entry),
            Some(ToServer::Ack(ack)) if self.is_primary => self.on_ack(now, from, ack),
            _ => self.stats.malformed += 1,
        }
    }

    fn on_request(&mut self, now: Mono, from: ProcessId, request: &Request<'_>) {
        let Request { session, number, step, action, .. } = *request;
        let owner = Owner { client: from, session, number };
        let ended = self.sessions.entry((from, session)).or_default().finish(request.finished);
        for (number, mut ended) in ended {
            self.release(now, Owner { number, ..owner }, &mut ended);
        }
        let open = self.sessions.entry((from, session)).or_default();
        if !open.admits(number) {
            return;
        }
        if let Some(known) = open.open.get(&number).filter(|known| known.step >= step) {
            // A request of an earlier step is late, and needs no reply any more.
            let outcome = known.outcome.clone().filter(|_| known.step == step);
            if let Some(outcome) = outcome {
                self.stats.repeated += 1;
                self.reply(owner, step, outcome);
            }
            return;
        }
        let known = open.open.remove(&number);
        let mut participant = known.unwrap_or_else(|| Participant::new(step));
        if step.attempt > participant.step.attempt {
            self.release(now, owner, &mut participant);
            participant = Participant::new(step);
        }
        if let Some(part) = request.part {
            participant.rows = self.state.keys(part);
            participant.part = Some(part.to_vec());
        }
        (participant.step, participant.outcome, participant.deferred) = (step, None, None);
        if self.may_perform(action, &participant) {
            let result = self.perform(now, owner, &mut participant, action);
            self.answer(owner, &mut participant, result);
        } else {
            self.stats.malformed += 1;
        }
        let open = self.sessions.entry((from, session)).or_default();
        open.open.insert(number, participant);
    }

    /// Replies, or lets the reply wait until an entry of the log is replicated.
    fn answer(
        &mut self,
        owner: Owner,
        participant: &mut Participant,
        (outcome, index): (Outcome, Option<u64>),
    ) {
        self.stats.conflicts += u64::from(outcome == Outcome::Conflict);
        if let Some(index) = index.filter(|index| !self.log.is_replicated(*index)) {
            participant.deferred = Some((index, outcome));
            return self.log.wait(index, owner);
        }
        participant.outcome = Some(outcome.clone());
        self.reply(owner, participant.step, outcome);
    }

    /// Whether the server has what it needs for an action.
    fn may_perform(&self, action: Action, participant: &Participant) -> bool {
        match action {
            Action::Abort => self.is_primary,
            Action::Execute => participant.part.is_some(),
            Action::Prepare | Action::Commit | Action::CommitAndUnlock | Action::Unlock => {
                self.is_primary && participant.part.is_some() && participant.held.is_some()
            }
            _ => self.is_primary && participant.part.is_some(),
        }
    }

    /// Performs an action. Returns the outcome, and the index of the log entry that must be
    /// replicated before the reply.
    fn perform(
        &mut self,
        now: Mono,
        owner: Owner,
        participant: &mut Participant,
        action: Action,
    ) -> (Outcome, Option<u64>) {
        let locks = &mut self.locks;
        let is_done = match action {
            Action::Execute => return (self.execute_unordered(participant), None),
            Action::Commit | Action::CommitAndUnlock => {
                let result = self.commit(now, owner, participant);
                if action == Action::CommitAndUnlock {
                    participant.unlock(&mut self.locks);
                }
                return result;
            }
            Action::Read => participant.read_versions(locks, owner),
            Action::LockWrites => {
                participant.is_current(locks, owner)
                    && participant.lock(locks, owner, Scope::Writes)
            }
            Action::LockAll => participant.lock(locks, owner, Scope::All),
            Action::Validate => participant.is_current(locks, owner),
            Action::ValidateAndPrepare => {
                participant.is_current(locks, owner) && participant.lock(locks, owner, Scope::All)
            }
            Action::Prepare => true,
            Action::Unlock | Action::Abort => {
                self.release(now, owner, participant);
                true
            }
        };
        if !is_done {
            return (Outcome::Conflict, None);
        }
        let (mut results, mut index) = (Vec::new(), None);
        if matches!(action, Action::Read | Action::LockAll)
            && let Some(part) = &participant.part
        {
            self.state.read_values(part, &mut results);
        }
        if matches!(action, Action::Prepare | Action::ValidateAndPrepare)
            && participant.writes()
            && let Some(part) = participant.part.clone()
        {
            participant.is_prepared = true;
            index = Some(self.log.append(now, (owner, Change::Prepare(part)), &mut self.outbox));
        }
        (Outcome::Done(results), index)
    }

    fn execute_unordered(&mut self, participant: &Participant) -> Outcome {
        let mut results = Vec::new();
        let part = participant.part.as_deref().unwrap_or_default();
        if participant.writes() {
            self.execute(self.stats.executed + 1, part, &mut results);
        } else {
            self.state.read_values(part, &mut results);
        }
        Outcome::Done(results)
    }

    /// Executes the part of a transaction that holds its locks.
    fn commit(
        &mut self,
        now: Mono,
        owner: Owner,
        participant: &mut Participant,
    ) -> (Outcome, Option<u64>) {
        let mut results = Vec::new();
        if !participant.writes() {
            return (Outcome::Done(results), None);
        }
        let part = participant.part.clone().unwrap_or_default();
        let was_prepared = core::mem::take(&mut participant.is_prepared);
        let change = Change::Commit((!was_prepared).then(|| part.clone()));
        let index = self.log.append(now, (owner, change), &mut self.outbox);
        self.execute(index, &part, &mut results);
        self.locks.on_written(&participant.rows);
        // All backups have a prepared part already.
        (Outcome::Done(results), (!was_prepared).then_some(index))
    }

    fn execute(&mut self, index: u64, part: &[u8], results: &mut Vec<u8>) {
        self.state.execute(Timestamp::from_ns(index), part, results);
        self.stats.executed += 1;
    }

    /// Releases the locks of a transaction, which is not executed if it is prepared.
    fn release(&mut self, now: Mono, owner: Owner, participant: &mut Participant) {
        participant.unlock(&mut self.locks);
        if core::mem::take(&mut participant.is_prepared) {
            self.log.append(now, (owner, Change::Abort), &mut self.outbox);
        }
    }

    fn reply(&mut self, owner: Owner, step: Step, outcome: Outcome) {
        let Owner { client, session, number } = owner;
        let reply = Reply { session, number, step, shard: self.shard, outcome };
        self.outbox.push_back(OutgoingMessage { to: client, payload: reply.to_bytes() });
    }

    fn on_entry(&mut self, entry: Entry) {
        for (index, part) in self.backup.on_entry(entry) {
            self.execute(index, &part, &mut Vec::new());
        }
        self.is_ack_due = true;
    }

    fn on_ack(&mut self, now: Mono, from: ProcessId, ack: Ack) {
        for (index, owner) in self.log.on_ack(now, from, ack) {
            let session = self.sessions.get_mut(&(owner.client, owner.session));
            let participant = session.and_then(|session| session.open.get_mut(&owner.number));
            let Some(participant) = participant else { continue };
            // The last request may be one of a later round, which waits for another entry.
            if let Some((_, outcome)) = participant.deferred.take_if(|(of, _)| *of == index) {
                let step = participant.step;
                participant.outcome = Some(outcome.clone());
                self.reply(owner, step, outcome);
            }
        }
    }

    /// Handles deadlines that have passed.
    pub fn handle_timeout(&mut self, now: Mono) {
        self.stats.entries_repeated += self.log.handle_timeout(now, &mut self.outbox);
    }

    /// Returns when [`Server::handle_timeout`] is to be called.
    pub fn poll_timeout(&self) -> Option<Mono> {
        self.log.poll_timeout()
    }

    /// Returns the next message to be sent.
    pub fn poll_message(&mut self) -> Option<OutgoingMessage> {
        if core::mem::take(&mut self.is_ack_due) {
            let payload = self.backup.ack().to_bytes();
            self.outbox.push_back(OutgoingMessage { to: self.primary, payload });
        }
        self.outbox.pop_front()
    }

    /// Returns the state.
    pub fn state(&self) -> &S {
        &self.state
    }

    /// Returns the number of locked rows.
    pub fn locked(&self) -> usize {
        self.locks.len()
    }

    /// Returns the counters.
    pub fn stats(&self) -> ServerStats {
        self.stats
    }
}
