//! How a replica that starts gets its state: whether the whole store starts, or goes on already.
//!
//! 1. The process with the least id is the *proposer*. Every other process states that it starts,
//!    and which session of the proposer it follows: the last one that it knows.
//! 2. Once all processes follow its current session, the proposer proposes them, with their
//!    sessions, as the *founders* of the store.
//! 3. A process adopts the proposal. If it is among the founders it begins with the initial state;
//!    any other incarnation of it catches up.
//! 4. Once all processes have adopted the proposal, the founders open the store by an admission.
//!    Until then replicas refuse all writes and other admissions, so that nothing is lost if a
//!    founder fails.
//!
//! The proposer may restart. A process that has adopted its proposal follows no later session, so
//! that there is no second proposal. If no process has, all follow the later session, and adopt the
//! earlier proposal no more.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use onepipe_base::{Mono, ProcessId};

use crate::feed::{FeedId, FeedMessage, Hello};
use crate::placement::Placement;
use crate::request::{OPENING, Request, RequestKind};
use crate::scattering::ReplicaScattering;

/// How a replica gets its state. Both are passed to [`crate::Replica::set_founders`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// The store starts with these processes, each given with its session, and this one is among
    /// them: the replica begins with its initial state.
    Begin(Vec<(ProcessId, u64)>),
    /// The store has started with these, and this one has to catch up
    /// ([`crate::Replica::returning`]).
    CatchUp(Vec<(ProcessId, u64)>),
}

/// A replica that starts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Start {
    process: ProcessId,
    session: u64,
    interval_ns: u64,
    others: Vec<ProcessId>,
    proposer: ProcessId,
    /// The last session of the proposer that is known.
    followed: Option<u64>,
    /// If this process is the proposer: those that follow its current session, with their own.
    followers: BTreeMap<ProcessId, u64>,
    proposal: Option<Vec<(ProcessId, u64)>>,
    /// Followers to which the proposal is to be sent, with their sessions.
    to_answer: BTreeMap<ProcessId, u64>,
    decision: Option<Decision>,
    /// The processes that have stated that they have adopted a proposal.
    serving: BTreeSet<ProcessId>,
    next_at: Option<Mono>,
}

impl Start {
    /// Creates the start of a process in a session, above that of any earlier incarnation of it.
    /// The process states that it starts every `interval_ns` ns.
    pub fn new(process: ProcessId, session: u64, placement: &Placement, interval_ns: u64) -> Self {
        let mut others: Vec<ProcessId> = placement.all_up().collect();
        others.retain(|other| *other != process);
        let proposer = others.iter().copied().chain([process]).min().unwrap_or(process);
        let mut start = Self {
            process,
            session,
            interval_ns,
            others,
            proposer,
            followed: (process == proposer).then_some(session),
            followers: BTreeMap::new(),
            proposal: None,
            to_answer: BTreeMap::new(),
            decision: None,
            serving: BTreeSet::new(),
            next_at: None,
        };
        if start.others.is_empty() {
            start.decision = Some(Decision::Begin([(process, session)].to_vec()));
        }
        start
    }

    /// Handles a message that was delivered to the process. Returns false if it is for a replica.
    pub fn on_message(&mut self, from: ProcessId, payload: &[u8]) -> bool {
        let Some((id, FeedMessage::Hello(hello))) = FeedMessage::parse(payload) else {
            return false;
        };
        if !self.others.contains(&from) {
            return true;
        }
        if self.decision.is_some() {
            match hello {
                Hello::Serves(_) => self.serving.insert(from),
                // The replica that has begun answers.
                Hello::Starts(_) => return false,
                Hello::Proposes(_) => false,
            };
            return true;
        }
        match hello {
            Hello::Starts(_) if from == self.proposer => {
                self.followed = self.followed.max(Some(id.session));
            }
            Hello::Starts(followed) => {
                if self.process == self.proposer && followed == Some(self.session) {
                    self.on_follower(from, id);
                }
            }
            Hello::Proposes(founders) | Hello::Serves(founders) if id.session == self.session => {
                self.on_founders(from, id.number, founders);
            }
            Hello::Proposes(_) | Hello::Serves(_) => {}
        }
        true
    }

    fn on_founders(&mut self, from: ProcessId, session: u64, founders: Vec<(ProcessId, u64)>) {
        let proposed_by = founders.iter().find(|(process, _)| *process == self.proposer);
        let is_of_followed = self.followed.is_none()
            || proposed_by.map(|(_, session)| *session) == self.followed
            // The proposer itself, in the session followed or a later one, has adopted an earlier
            // proposal: no other will come.
            || (from == self.proposer && Some(session) >= self.followed)
            // This process proposes, and another one has adopted its proposal, or that of an
            // earlier session.
            || self.process == self.proposer;
        if is_of_followed {
            let is_founder = founders.contains(&(self.process, self.session));
            self.decision = Some(match is_founder {
                true => Decision::Begin(founders),
                false => Decision::CatchUp(founders),
            });
        }
    }

    /// Handles that a process follows this one.
    fn on_follower(&mut self, from: ProcessId, id: FeedId) {
        let known = self.followers.entry(from).or_insert(id.session);
        *known = (*known).max(id.session);
        if self.proposal.is_none() && self.followers.len() == self.others.len() {
            let followers = self.followers.iter().map(|(process, session)| (*process, *session));
            let founders = [(self.process, self.session)].into_iter().chain(followers);
            self.proposal = Some(founders.collect());
        }
        if self.proposal.is_some() {
            self.to_answer.insert(from, id.session);
        }
    }

    /// Returns the next scattering to the others. The driver drops one that the fabric does not
    /// accept: it is repeated in the next interval.
    pub fn poll_scattering(&mut self, now: Mono) -> Option<ReplicaScattering> {
        if let Some((to, session)) = self.to_answer.pop_first()
            && let Some(proposal) = &self.proposal
        {
            let id = FeedId { session, number: self.session };
            let payload = FeedMessage::Hello(Hello::Proposes(proposal.clone())).to_bytes(id);
            return Some(ReplicaScattering::best_effort([(to, payload)].to_vec()));
        }
        if self.next_at.is_some_and(|next_at| now < next_at) {
            return None;
        }
        self.next_at = Some(now.after_ns(self.interval_ns));
        if self.is_complete() {
            return self.compose_opening();
        }
        let id = FeedId { session: self.session, number: 0 };
        let payload = FeedMessage::Hello(Hello::Starts(self.followed)).to_bytes(id);
        let messages = self.others.iter().map(|other| (*other, payload.clone())).collect();
        Some(ReplicaScattering::best_effort(messages))
    }

    /// Returns what was decided.
    pub fn decision(&self) -> Option<&Decision> {
        self.decision.as_ref()
    }

    /// Whether all other processes have adopted the proposal, or this one has to catch up.
    fn is_complete(&self) -> bool {
        match &self.decision {
            None => false,
            Some(Decision::CatchUp(_)) => true,
            Some(Decision::Begin(_)) => self.serving.len() == self.others.len(),
        }
    }

    /// Returns the admission that opens the store. It is repeated in each interval until the driver
    /// drops the start, because the replica of the process is open.
    fn compose_opening(&self) -> Option<ReplicaScattering> {
        let is_founder = matches!(self.decision, Some(Decision::Begin(_)));
        if !is_founder {
            return None;
        }
        let request = Request {
            kind: RequestKind::Admit,
            session: self.session,
            number: OPENING,
            attempt: 0,
            finished: 0,
            view: None,
            parts: Vec::new(),
        };
        let mut payload = Vec::new();
        request.write(&mut payload);
        let all = self.others.iter().copied().chain([self.process]);
        Some(ReplicaScattering::reliable(all.map(|to| (to, payload.clone())).collect()))
    }

    /// Returns the processes that this one waits for.
    pub fn missing(&self) -> Vec<ProcessId> {
        let is_missing = |other: &&ProcessId| match &self.decision {
            Some(_) => !self.serving.contains(other),
            None if self.process == self.proposer => !self.followers.contains_key(other),
            None => **other == self.proposer,
        };
        self.others.iter().filter(is_missing).copied().collect()
    }
}
