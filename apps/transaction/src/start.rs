//! How a replica that starts gets its state: from the logs if the whole store starts, or from a
//! replica that serves if the store is open already.
//!
//! 1. Each process that starts sends its session to all others, again and again.
//! 2. Once the process with the least id has the sessions of all others, it proposes all processes,
//!    with their sessions, as the *founders* of the store. A process that receives the proposal
//!    takes part in this *round*.
//! 3. The founders exchange what their logs hold, and compute their *roles* ([`crate::Roles`]): a
//!    founder adds to its log what only others hold, or will catch up. Then it is ready.
//! 4. A founder that knows that all are ready sends the *opening* to all, by a reliable scattering.
//!    The first opening in the total order counts: founders serve, or catch up, from there on.
//!
//! If a founder ends before the opening in the total order, the others start over in new sessions.
//! A founder that receives a new session of another one starts over, too, once it has delivered all
//! reliable messages before. So all founders open the store, or none does. A founder leaves a round
//! for one of two reasons: another one has ended, which all see at the same position of the total
//! order; or another one has left before it was ready, so that no opening is ever sent.
//!
//! A replica that serves answers a process that starts: the store is open. Then the process catches
//! up.

mod message;
mod round;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use onepipe_base::{Mono, ProcessId, Timestamp};

use crate::placement::Placement;
use crate::recovery::Record;
use crate::request::{OPENING, Request, RequestKind};
use crate::roles::{LostShard, Role};
use crate::scattering::ReplicaScattering;
pub(crate) use message::{Founders, StartMessage};
pub use round::OwnLog;
use round::Round;

/// How far the start of a replica has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The replica does not know whether the store is open.
    Unknown,
    /// The store starts, and this replica is a founder. Its role is `None` until what the logs of
    /// all founders hold is known.
    Founds(Option<Role>),
    /// The store cannot start: a shard has no whole log.
    Lost(LostShard),
    /// The founders have opened the store at this timestamp. The replica serves, or catches up, by
    /// its role.
    Opened(Timestamp, Role),
    /// The store was open already: the replica catches up.
    Joins,
}

impl Phase {
    /// Returns whether the replica waits for others.
    fn is_pending(self) -> bool {
        !matches!(self, Self::Opened(..) | Self::Joins)
    }
}

/// The start of a replica, until the replica serves or catches up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    process: ProcessId,
    session: u64,
    interval_ns: u64,
    others: Vec<ProcessId>,
    own: OwnLog,
    /// The other processes that have stated since the last proposal that they start, with their
    /// sessions.
    starting: BTreeMap<ProcessId, u64>,
    /// Processes to which the proposal is to be sent, or to be sent again.
    to_propose: Vec<ProcessId>,
    round: Option<Round>,
    /// The last end of each process, for rounds that begin later.
    ended: BTreeMap<ProcessId, Timestamp>,
    /// All reliable messages below this timestamp were delivered.
    barrier: Timestamp,
    /// The founders of a store that was open already.
    served_by: Option<Founders>,
    next_at: Option<Mono>,
}

impl Start {
    /// Creates the start of a process. `session` is the time of the start in ns, and should be
    /// above the ends of all previous incarnations. `own` is what the log of the process holds.
    /// Messages are repeated every `interval_ns` ns.
    pub fn new(
        process: ProcessId,
        session: u64,
        placement: &Placement,
        own: OwnLog,
        interval_ns: u64,
    ) -> Self {
        let mut others: Vec<ProcessId> = placement.all_up().collect();
        others.retain(|other| *other != process);
        let mut start = Self {
            process,
            session,
            interval_ns,
            others,
            own,
            starting: BTreeMap::new(),
            to_propose: Vec::new(),
            round: None,
            ended: BTreeMap::new(),
            barrier: Timestamp::from_ns(0),
            served_by: None,
            next_at: None,
        };
        start.propose();
        start
    }

    /// Returns the session, which a start-over raises.
    pub fn session(&self) -> u64 {
        self.session
    }

    /// Returns how far the start has come.
    pub fn phase(&self) -> Phase {
        let Some(round) = &self.round else {
            return if self.served_by.is_some() { Phase::Joins } else { Phase::Unknown };
        };
        match (round.role(), round.opened) {
            (Some(Err(lost)), _) => Phase::Lost(lost),
            (Some(Ok(role)), Some(at)) => Phase::Opened(at, role),
            (Some(Ok(role)), None) => Phase::Founds(Some(role)),
            (None, _) => Phase::Founds(None),
        }
    }

    /// Returns the roles of all founders, once they are known.
    pub fn roles(&self) -> Option<&crate::Roles> {
        self.round.as_ref()?.roles.as_ref()?.as_ref().ok()
    }

    /// Returns the processes and sessions with which the store starts, or has started.
    pub fn founders(&self) -> Vec<(ProcessId, u64)> {
        let of_round = self.round.as_ref().map(|round| &round.founders);
        of_round.or(self.served_by.as_ref()).cloned().unwrap_or_default()
    }

    /// Handles a message that was delivered to the process. Returns whether the message concerns
    /// the start; others are for a replica.
    pub fn on_message(
        &mut self,
        is_reliable: bool,
        at: Timestamp,
        from: ProcessId,
        payload: &[u8],
    ) -> bool {
        if is_reliable {
            self.advance(at);
            return self.on_opening(at, from, payload);
        }
        let Some((session, message)) = StartMessage::parse(payload) else { return false };
        if !self.others.contains(&from) || self.served_by.is_some() {
            return true;
        }
        if let Some(round) = &mut self.round {
            round.on_session(from, session, at);
        }
        self.on_start_message(from, session, message);
        true
    }

    fn on_start_message(&mut self, from: ProcessId, session: u64, message: StartMessage) {
        match (message, &mut self.round) {
            (StartMessage::Starts, None) => {
                let known = self.starting.entry(from).or_default();
                *known = session.max(*known);
                self.propose();
            }
            // The proposal was lost.
            (StartMessage::Starts, Some(round)) if round.founders.contains(&(from, session)) => {
                self.to_propose.push(from);
            }
            (StartMessage::Proposes { to, founders }, None) if to == self.session => {
                self.begin_round(founders);
            }
            (StartMessage::Serves { to, founders }, round) if to == self.session => {
                // The sender serves since the opening of another round: this one is never opened.
                let is_other = round.as_ref().is_none_or(|round| round.founders != founders);
                if is_other && self.phase().is_pending() {
                    (self.round, self.served_by) = (None, Some(founders));
                }
            }
            (StartMessage::States { round: id, summary, is_ready }, Some(round))
                if id == round.id() =>
            {
                round.on_state(from, summary, is_ready);
            }
            (StartMessage::Wants { round: id, after }, Some(round)) if id == round.id() => {
                round.on_wants(from, after, &self.own.records);
            }
            (StartMessage::Holds { round: id, after, until, records }, Some(round))
                if id == round.id() =>
            {
                round.on_holds(from, (after, until), records);
            }
            _ => {}
        }
    }

    /// Proposes a round if this process is the proposer, and all others start.
    fn propose(&mut self) {
        let is_proposer = self.others.iter().all(|other| *other > self.process);
        if is_proposer && self.starting.len() == self.others.len() {
            let own = (self.process, self.session);
            let founders: Founders =
                [own].into_iter().chain(core::mem::take(&mut self.starting)).collect();
            self.to_propose.clone_from(&self.others);
            self.begin_round(founders);
        }
    }

    fn begin_round(&mut self, founders: Founders) {
        if !founders.contains(&(self.process, self.session)) {
            return;
        }
        let own = (self.process, self.session);
        let mut round = Round::new(own, founders, self.own.summary.clone());
        for (process, at) in &self.ended {
            round.on_ended(*process, *at);
        }
        self.round = Some(round);
        self.next_at = None;
    }

    /// Returns the last end of each process that the replica has to be notified of before it goes
    /// on. No founder had ended before the opening: earlier ends are of previous incarnations.
    pub fn ends(&self) -> impl Iterator<Item = (ProcessId, Timestamp)> {
        let opened = self.round.as_ref().and_then(|round| round.opened);
        let ends = self.ended.iter().map(|(process, at)| (*process, *at));
        ends.filter(move |(_, at)| Some(*at) >= opened)
    }

    /// Notes that a process has ended at a timestamp.
    pub fn on_process_ended(&mut self, process: ProcessId, at: Timestamp) {
        self.ended.insert(process, at);
        self.starting.remove(&process);
        if let Some(round) = &mut self.round {
            round.on_ended(process, at);
        }
    }

    /// Notes that all reliable messages below `barrier` were delivered.
    pub fn on_barrier(&mut self, barrier: Timestamp) {
        self.advance(barrier);
    }

    /// Starts over if a founder has ended, or left the round, below `barrier` and without an
    /// opening before.
    fn advance(&mut self, barrier: Timestamp) {
        self.barrier = self.barrier.max(barrier);
        let Some(round) = &self.round else { return };
        let left = [round.ended, round.left].into_iter().flatten().min();
        if round.opened.is_none() && left.is_some_and(|left| left < barrier) {
            self.start_over();
        }
    }

    /// Starts over in a new session: others may know this process as ready in the last one. The new
    /// session is above the ends of previous incarnations, even if the clock was behind them.
    fn start_over(&mut self) {
        self.session = (self.session + 1).max(self.barrier.as_ns());
        self.round = None;
        self.starting.clear();
        self.to_propose.clear();
        self.next_at = None;
        self.propose();
    }

    /// Handles a reliable message. Returns whether it concerns the opening of a store.
    fn on_opening(&mut self, at: Timestamp, from: ProcessId, payload: &[u8]) -> bool {
        let Some(request) = Request::parse(payload) else { return false };
        if request.kind != RequestKind::Admit || request.number != OPENING {
            return false;
        }
        if let Some(round) = &mut self.round
            && round.id() == request.session
            && round.has_founder(from)
            && round.opened.is_none()
        {
            round.opened = Some(at);
        }
        true
    }

    /// Returns the next scattering to the others. The driver drops one that the fabric does not
    /// accept: it is repeated in the next interval.
    pub fn poll_scattering(&mut self, now: Mono) -> Option<ReplicaScattering> {
        if let Some(to) = self.to_propose.pop()
            && let Some(round) = &self.round
            && let Some((_, session)) = round.founders.iter().find(|(process, _)| *process == to)
        {
            let founders = round.founders.clone();
            let proposes = StartMessage::Proposes { to: *session, founders };
            let message = (to, proposes.to_bytes(self.session));
            return Some(ReplicaScattering::best_effort([message].to_vec()));
        }
        if self.served_by.is_some() {
            return None;
        }
        if let Some(sent) = self.round.as_mut().and_then(Round::poll) {
            return Some(sent);
        }
        if self.next_at.is_some_and(|next_at| now < next_at) {
            return None;
        }
        self.next_at = Some(now.after_ns(self.interval_ns));
        let payload = match &mut self.round {
            None => StartMessage::Starts.to_bytes(self.session),
            Some(round) if round.opened.is_none() && round.are_all_ready() => {
                return Some(self.compose_opening());
            }
            Some(round) => {
                round.ask_again();
                round.state()
            }
        };
        let messages: Vec<_> = self.others.iter().map(|to| (*to, payload.clone())).collect();
        (!messages.is_empty()).then(|| ReplicaScattering::best_effort(messages))
    }

    /// Returns the scattering that opens the store. Any founder may send one, and the first in the
    /// total order counts.
    fn compose_opening(&self) -> ReplicaScattering {
        let request = Request {
            kind: RequestKind::Admit,
            session: self.round.as_ref().map_or(0, Round::id),
            number: OPENING,
            attempt: 0,
            finished: 0,
            view: None,
            parts: Vec::new(),
        };
        let mut payload = Vec::new();
        request.write(&mut payload);
        let all = self.others.iter().copied().chain([self.process]);
        ReplicaScattering::reliable(all.map(|to| (to, payload.clone())).collect())
    }

    /// Returns the next record that the log of this process lacks, in the order of execution. The
    /// driver lets the replica replay the record, and stores it.
    pub fn next_missing(&mut self) -> Option<Record> {
        let record = self.round.as_mut()?.next_missing()?;
        // The founder whose log had the record may have lost its disk when the next round begins.
        self.own.summary.last = Some(record.position());
        self.own.records.push(record.clone());
        Some(record)
    }

    /// Returns whether the log of this process has all that the logs of other founders hold.
    pub fn is_log_complete(&self) -> bool {
        self.round.as_ref().is_some_and(Round::is_complete)
    }

    /// Replaces what the log of this process holds, after void records were removed from the log.
    pub fn set_own(&mut self, own: OwnLog) {
        self.own = own;
    }

    /// Notes that the replica is ready for the opening: its log is complete and stored, or the
    /// replica has to catch up.
    pub fn set_ready(&mut self) {
        if let Some(round) = &mut self.round {
            round.set_ready();
            self.next_at = None;
        }
    }

    /// Returns the processes that the opening waits for, as far as this one knows: those that have
    /// to start, or to state what their logs hold, then this one while it completes its log, then
    /// those that are not ready. Empty once the store is open.
    pub fn missing(&self) -> Vec<ProcessId> {
        let Some(round) = &self.round else {
            let known = |other: &&ProcessId| !self.starting.contains_key(other);
            return self.others.iter().filter(known).copied().collect();
        };
        match round.opened {
            Some(_) => Vec::new(),
            None => round.missing().collect(),
        }
    }
}
