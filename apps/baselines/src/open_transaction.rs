//! An unfinished transaction of a client.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use onepipe_base::{Mono, ProcessId};
use onepipe_transaction::Placement;

use crate::keyed::Keyed;
use crate::message::{Outcome, Reply, Request, Step};
use crate::protocol::{Action, Round, Shards};

/// The round in which a transaction aborts.
const ABORT_ROUND: u8 = u8::MAX;

/// The part of a transaction at one shard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    /// The shard.
    pub shard: u16,
    /// The operations, as [`onepipe_transaction::State`] executes them.
    pub bytes: Vec<u8>,
    /// Whether the part reads.
    pub reads: bool,
    /// Whether the part writes.
    pub writes: bool,
}

impl Part {
    /// Creates the part of a shard with the state `S`.
    pub fn new<S: Keyed>(shard: u16, bytes: Vec<u8>) -> Self {
        let (reads, writes) = S::uses(&bytes);
        Self { shard, bytes, reads, writes }
    }
}

/// What has become of a transaction after a reply, or after a round has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Replies are missing.
    Waits,
    /// All have answered: the next round begins.
    NextRound,
    /// The transaction has conflicts: it aborts.
    Aborts,
    /// The abort is complete: another attempt begins later.
    Aborted,
}

/// An unfinished transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OpenTransaction {
    pub parts: Vec<Part>,
    pub rounds: &'static [Round],
    pub attempt: u32,
    /// Index of the current round.
    round: usize,
    is_aborting: bool,
    /// Whether the deadline is the time of the next attempt.
    pub is_deferred: bool,
    /// The processes whose replies are missing, with their shards.
    awaited: BTreeMap<ProcessId, u16>,
    /// The servers that have received the part in this attempt.
    informed: BTreeSet<ProcessId>,
    /// The shards that may hold locks in this attempt.
    locked: BTreeSet<u16>,
    results: BTreeMap<u16, Vec<u8>>,
    pub sent_at: Mono,
    pub repeated: u32,
    pub deadline: Option<Mono>,
}

impl OpenTransaction {
    pub fn new(parts: Vec<Part>, rounds: &'static [Round], now: Mono) -> Self {
        Self {
            parts,
            rounds,
            attempt: 1,
            round: 0,
            is_aborting: false,
            is_deferred: false,
            awaited: BTreeMap::new(),
            informed: BTreeSet::new(),
            locked: BTreeSet::new(),
            results: BTreeMap::new(),
            sent_at: now,
            repeated: 0,
            deadline: None,
        }
    }

    /// Returns the step of the current requests.
    fn step(&self) -> Step {
        let round = if self.is_aborting { ABORT_ROUND } else { self.round as u8 };
        Step { attempt: self.attempt, round }
    }

    fn action(&self) -> Option<Action> {
        match self.is_aborting {
            true => Some(Action::Abort),
            false => self.rounds.get(self.round).map(|round| round.action),
        }
    }

    /// Begins the current round: awaits the replies of the servers concerned. Returns whether there
    /// are any. `turn` chooses among replicas of which one is enough.
    pub fn begin(&mut self, placement: &Placement, turn: u64) -> bool {
        let Some(round) = self.rounds.get(self.round) else { return false };
        for part in &self.parts {
            let is_concerned = match round.shards {
                Shards::Reads => part.reads,
                Shards::Writes => part.writes,
                Shards::All => true,
            };
            if !is_concerned {
                continue;
            }
            let replicas = placement.replicas(part.shard);
            let turn = (turn % replicas.len().max(1) as u64) as usize;
            let servers = match (round.action, part.writes) {
                (Action::Execute, true) => replicas,
                (Action::Execute, false) => replicas.get(turn..=turn).unwrap_or_default(),
                _ => replicas.get(..1).unwrap_or_default(),
            };
            self.awaited.extend(servers.iter().map(|server| (*server, part.shard)));
            if round.action.locks() {
                self.locked.insert(part.shard);
            }
        }
        !self.awaited.is_empty()
    }

    /// Returns the requests to the servers whose replies are missing.
    pub fn requests(
        &self,
        (session, number, finished): (u64, u64, u64),
    ) -> Vec<(ProcessId, Vec<u8>)> {
        let Some(action) = self.action() else { return Vec::new() };
        let request = |(server, shard): (&ProcessId, &u16)| {
            let is_new = !self.is_aborting && !self.informed.contains(server);
            let part = self.parts.iter().find(|part| part.shard == *shard && is_new);
            let part = part.map(|part| part.bytes.as_slice());
            let step = self.step();
            (*server, Request { session, number, finished, step, action, part }.to_bytes())
        };
        self.awaited.iter().map(request).collect()
    }

    /// Returns the servers whose replies are missing.
    pub fn awaited(&self) -> impl Iterator<Item = ProcessId> {
        self.awaited.keys().copied()
    }

    /// Handles a reply. Returns `None` if it is late or unexpected.
    pub fn on_reply(&mut self, from: ProcessId, reply: Reply) -> Option<Progress> {
        if reply.step != self.step() || self.is_deferred {
            return None;
        }
        let shard = self.awaited.remove(&from)?;
        match reply.outcome {
            // A server that has a conflict has locked nothing.
            Outcome::Conflict => {
                if self.action().is_some_and(Action::locks) {
                    self.locked.remove(&shard);
                }
                return Some(Progress::Aborts);
            }
            Outcome::Done(results) if !self.is_aborting => {
                self.informed.insert(from);
                // The first results are the values that were read, and later validated.
                let known = self.results.entry(shard).or_default();
                if known.is_empty() {
                    *known = results;
                }
            }
            Outcome::Done(_) => {}
        }
        Some(match (self.awaited.is_empty(), self.is_aborting) {
            (false, _) => Progress::Waits,
            (true, false) => Progress::NextRound,
            (true, true) => Progress::Aborted,
        })
    }

    /// Goes on to the next round. Returns whether there is one.
    pub fn next_round(&mut self) -> bool {
        self.round += 1;
        self.round < self.rounds.len()
    }

    /// Begins to abort: awaits the replies of the servers that may hold locks. Returns whether
    /// there are any.
    pub fn abort(&mut self, placement: &Placement) -> bool {
        self.is_aborting = true;
        let primary = |shard: &u16| Some((*placement.replicas(*shard).first()?, *shard));
        self.awaited = self.locked.iter().filter_map(primary).collect();
        !self.awaited.is_empty()
    }

    /// Prepares another attempt.
    pub fn restart(&mut self) {
        self.attempt += 1;
        (self.round, self.is_aborting, self.is_deferred) = (0, false, false);
        self.awaited.clear();
        self.informed.clear();
        self.locked.clear();
        self.results.clear();
    }

    pub fn take_results(&mut self) -> Vec<(u16, Vec<u8>)> {
        core::mem::take(&mut self.results).into_iter().collect()
    }
}
