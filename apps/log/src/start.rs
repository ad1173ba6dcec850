//! How the replicas of a log meet when all of them have ended.
//!
//! 1. Each replica that starts sends its session to all others, again and again. A replica that
//!    serves answers that the log is open: then the one that starts catches up.
//! 2. Once the replica with the least id, the *proposer*, has the sessions of all others, it
//!    proposes them as *founders*. Each founder answers with what it has stored.
//! 3. The proposer computes where the log goes on ([`Founding::of`]), and sends that to all
//!    founders by one reliable scattering. So all of them found the log, or none does.
//!
//! A founder that ends before the founding in the total order makes it void. All founders know of
//! that end: each has answered after the others had started.

mod message;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use onepipe_base::{Mono, ProcessId, Timestamp};

use crate::cut::Cut;
use crate::founding::{Founding, FoundingError, OwnLog};
use crate::scattering::{Scattering, ScatteringKind};
use crate::view::View;
pub use message::StartMessage;

/// The founders, with their sessions, in ascending order.
pub type Founders = BTreeMap<ProcessId, u64>;

/// How far the start of a replica has come.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StartPhase {
    /// The replica waits for others.
    Pending,
    /// The log goes on from this timestamp on.
    Founded(Timestamp, Founding),
    /// The log is open already: the replica catches up.
    Joins,
    /// The log cannot go on with what the founders have stored.
    Failed(FoundingError),
}

/// The start of a replica, until the log is open.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LogStart {
    process: ProcessId,
    session: u64,
    interval_ns: u64,
    others: BTreeSet<ProcessId>,
    own: OwnLog,
    /// Sessions of the others that start.
    starting: Founders,
    /// The founders, once they are proposed, and what those have stored that have answered.
    founders: Option<Founders>,
    stored: BTreeMap<ProcessId, OwnLog>,
    /// The founding was sent.
    is_sent: bool,
    /// The last end of each process.
    ended: BTreeMap<ProcessId, Timestamp>,
    phase: StartPhase,
    next_at: Option<Mono>,
    unsent: Vec<Scattering>,
}

impl LogStart {
    /// Creates the start of a replica. `session` is the time of the start in ns, which is above the
    /// ends of all previous incarnations. `own` is what the replica has of the log. Messages are
    /// repeated every `interval_ns` ns.
    pub fn new(
        (process, session): (ProcessId, u64),
        replicas: &BTreeSet<ProcessId>,
        own: OwnLog,
        interval_ns: u64,
    ) -> Self {
        let mut others = replicas.clone();
        others.remove(&process);
        let mut start = Self {
            process,
            session,
            interval_ns,
            others,
            own,
            starting: Founders::new(),
            founders: None,
            stored: BTreeMap::new(),
            is_sent: false,
            ended: BTreeMap::new(),
            phase: StartPhase::Pending,
            next_at: None,
            unsent: Vec::new(),
        };
        start.propose();
        start
    }

    /// Returns how far the start has come.
    pub fn phase(&self) -> &StartPhase {
        &self.phase
    }

    /// Returns the processes that the start waits for, as far as this one knows.
    pub fn missing(&self) -> Vec<ProcessId> {
        let is_missing = |other: &&ProcessId| match &self.founders {
            None => !self.starting.contains_key(other),
            Some(_) if self.is_proposer() => !self.stored.contains_key(other),
            Some(_) => false,
        };
        match self.phase {
            StartPhase::Pending => self.others.iter().filter(is_missing).copied().collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the ends of which the replica has to be notified before it goes on.
    pub fn ends(&self) -> impl Iterator<Item = (ProcessId, Timestamp)> {
        let from = match &self.phase {
            StartPhase::Founded(at, _) => Some(*at),
            _ => None,
        };
        let ends = self.ended.iter().map(|(process, at)| (*process, *at));
        ends.filter(move |(_, at)| from.is_none_or(|from| *at >= from))
    }

    fn is_proposer(&self) -> bool {
        self.others.iter().all(|other| *other > self.process)
    }

    /// Handles a delivered message. Returns whether it concerns the start; others are for the
    /// replica.
    pub fn on_message(
        &mut self,
        is_reliable: bool,
        at: Timestamp,
        from: ProcessId,
        payload: &[u8],
    ) -> bool {
        let Some(message) = StartMessage::parse(payload) else { return false };
        let is_known = from == self.process || self.others.contains(&from);
        if !is_known || message.is_reliable() != is_reliable || self.phase != StartPhase::Pending {
            return true;
        }
        match message {
            StartMessage::Starts(_, true) if self.own == OwnLog::Empty => self.on_lost(),
            StartMessage::Starts(session, _) => self.on_starts(from, session),
            StartMessage::Proposes(founders) => self.on_proposes(&founders),
            StartMessage::Stores(founders, stored) if self.founders.as_ref() == Some(&founders) => {
                self.stored.insert(from, stored);
                self.found();
            }
            StartMessage::Founds(founders, founding) => self.on_founds(at, &founders, founding),
            // If this replica has answered a proposal, nothing but that opens the log, and the
            // founding is on its way.
            StartMessage::Serves(session) if session == self.session && self.founders.is_none() => {
                match self.own {
                    OwnLog::Empty => self.on_lost(),
                    _ => self.phase = StartPhase::Joins,
                }
            }
            StartMessage::Serves(_) | StartMessage::Stores(..) => {}
        }
        true
    }

    /// Fails, as there is a log, and this replica has lost its own: it may be the only one that has
    /// the last entries, and whether it is cannot be found out any more.
    fn on_lost(&mut self) {
        self.phase = StartPhase::Failed(FoundingError::Lost(self.process));
    }

    fn on_starts(&mut self, from: ProcessId, session: u64) {
        let known = self.starting.entry(from).or_default();
        if session > *known {
            *known = session;
            // The previous incarnation does not answer any more.
            if self.is_proposer() && !self.is_sent {
                self.founders = None;
            }
        }
        self.propose();
    }

    /// Proposes all replicas as founders, if this one is the proposer and the others start.
    fn propose(&mut self) {
        let is_due = self.founders.is_none() && self.starting.len() == self.others.len();
        if self.is_proposer() && is_due {
            let mut founders = self.starting.clone();
            founders.insert(self.process, self.session);
            self.stored = [(self.process, self.own.clone())].into();
            self.send(self.others.clone(), &StartMessage::Proposes(founders.clone()));
            self.founders = Some(founders);
            self.found();
        }
    }

    fn on_proposes(&mut self, founders: &Founders) {
        if founders.get(&self.process) == Some(&self.session)
            && let Some((proposer, _)) = founders.first_key_value()
        {
            let stores = StartMessage::Stores(founders.clone(), self.own.clone());
            self.send([*proposer].into(), &stores);
            self.founders = Some(founders.clone());
        }
    }

    /// Sends where the log goes on, once all founders have answered.
    fn found(&mut self) {
        let Some(founders) = &self.founders else { return };
        if self.is_sent || self.stored.len() < founders.len() || self.has_lost_founder() {
            return;
        }
        match self.founding(founders) {
            Ok(founding) => {
                let founders_and_own = founders.keys().copied().collect();
                let founds = StartMessage::Founds(founders.clone(), founding);
                self.is_sent = true;
                self.send(founders_and_own, &founds);
            }
            Err(error) => self.phase = StartPhase::Failed(error),
        }
    }

    /// Returns whether another founder has lost its log. That founder ends when it finds out.
    fn has_lost_founder(&self) -> bool {
        let has_log = self.stored.values().any(|own| matches!(own, OwnLog::Stored(_)));
        let is_lost = |(process, own): (&ProcessId, &OwnLog)| {
            *process != self.process && *own == OwnLog::Empty
        };
        has_log && self.stored.iter().any(is_lost)
    }

    fn founding(&self, founders: &Founders) -> Result<Founding, FoundingError> {
        let (mut logs, mut replaced) = (BTreeMap::new(), BTreeSet::new());
        for (process, stored) in &self.stored {
            match stored {
                OwnLog::Stored(stored) => drop(logs.insert(*process, stored.clone())),
                OwnLog::Replaced => drop(replaced.insert(*process)),
                OwnLog::Empty => {}
            }
        }
        if !logs.is_empty() {
            return match self.own {
                OwnLog::Empty => Err(FoundingError::Lost(self.process)),
                _ => Founding::of(&logs, &replaced),
            };
        }
        let view = View::first(founders.keys().copied());
        let cut = Cut { base_len: 0, base_checksum: 0, retained: Vec::new() };
        Ok(Founding { view, cut })
    }

    fn on_founds(&mut self, at: Timestamp, founders: &Founders, founding: Founding) {
        self.is_sent = false;
        if founders.get(&self.process) != Some(&self.session) {
            return;
        }
        let has_ended = |(process, session): (&ProcessId, &u64)| {
            let ended = self.ended.get(process);
            ended.is_some_and(|ended| ended.as_ns() >= *session && *ended < at)
        };
        if founders.iter().any(has_ended) {
            self.founders = None;
            return self.propose();
        }
        self.phase = StartPhase::Founded(at, founding);
    }

    /// Notes that a process has ended at a timestamp.
    pub fn on_ended(&mut self, process: ProcessId, at: Timestamp) {
        self.ended.insert(process, at);
        if self.starting.get(&process).is_some_and(|session| at.as_ns() >= *session) {
            self.starting.remove(&process);
            if !self.is_sent {
                self.founders = None;
            }
        }
    }

    /// Notes that the founding was not delivered.
    pub fn on_send_failed(&mut self) {
        if self.is_sent {
            self.is_sent = false;
            self.founders = None;
            self.propose();
        }
    }

    fn send(&mut self, receivers: BTreeSet<ProcessId>, message: &StartMessage) {
        if !receivers.is_empty() {
            let kind = match message.is_reliable() {
                true => ScatteringKind::Statement,
                false => ScatteringKind::BestEffort,
            };
            let receivers = receivers.into_iter().collect();
            self.unsent.push(Scattering { kind, receivers, payload: message.to_bytes() });
        }
    }

    /// Returns the next scattering to be sent.
    pub fn poll_scattering(&mut self, now: Mono) -> Option<Scattering> {
        let is_due = self.next_at.is_none_or(|next_at| now >= next_at);
        if self.phase == StartPhase::Pending && is_due {
            self.next_at = Some(now.after_ns(self.interval_ns));
            let has_log = matches!(self.own, OwnLog::Stored(_));
            self.send(self.others.clone(), &StartMessage::Starts(self.session, has_log));
            if let Some(founders) = self.founders.clone().filter(|_| self.is_proposer()) {
                self.send(self.others.clone(), &StartMessage::Proposes(founders));
            }
        }
        self.unsent.pop()
    }

    /// Returns when [`LogStart::poll_scattering`] is due.
    pub fn poll_timeout(&self) -> Option<Mono> {
        self.next_at.filter(|_| self.phase == StartPhase::Pending)
    }

    /// Returns what a replica that serves answers to a message of one that starts, if anything.
    pub fn answer(payload: &[u8]) -> Option<Vec<u8>> {
        match StartMessage::parse(payload)? {
            StartMessage::Starts(session, _) => Some(StartMessage::Serves(session).to_bytes()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how a replica with this log starts, after messages of another one.
    fn phase(own: OwnLog, messages: &[StartMessage]) -> StartPhase {
        let replicas = [0, 1, 2].map(ProcessId).into();
        let mut start = LogStart::new((ProcessId(1), 7), &replicas, own, 1);
        let at = Timestamp::from_ns(9);
        for message in messages {
            start.on_message(false, at, ProcessId(2), &message.to_bytes());
        }
        start.phase().clone()
    }

    #[test]
    fn replica_without_its_log_starts_on_request_only() {
        let lost = StartPhase::Failed(FoundingError::Lost(ProcessId(1)));
        let (starts, serves) = (StartMessage::Starts(5, true), StartMessage::Serves(7));
        assert_eq!(phase(OwnLog::Empty, core::slice::from_ref(&starts)), lost);
        assert_eq!(phase(OwnLog::Empty, core::slice::from_ref(&serves)), lost);
        assert_eq!(phase(OwnLog::Empty, &[StartMessage::Starts(5, false)]), StartPhase::Pending);
        assert_eq!(phase(OwnLog::Replaced, &[starts]), StartPhase::Pending);
        assert_eq!(phase(OwnLog::Replaced, &[serves]), StartPhase::Joins);
    }
}
