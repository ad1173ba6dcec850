//! A round: the founders of a store exchange what their logs hold, until all are ready to serve.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use onepipe_base::{ProcessId, Timestamp};

use super::message::{Founders, StartMessage};
use crate::recovery::{Position, Record};
use crate::roles::{LogSummary, LostShard, Role, Roles};
use crate::scattering::ReplicaScattering;

/// A part of a log has this many bytes at most, unless a single record is longer.
const PART_LEN: usize = 32 << 10;
/// Limit on the records that are looked at for one part: most may be of other shards.
const SCANNED_MAX: usize = 1 << 12;

/// The own log, as far as others need it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnLog {
    /// What it holds.
    pub summary: LogSummary,
    /// Its records behind the snapshot, in order.
    pub records: Vec<Record>,
}

/// What another founder sends of its log.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Source {
    /// All up to here was received.
    after: Option<Position>,
    is_ended: bool,
    records: VecDeque<Record>,
}

/// One round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Round {
    process: ProcessId,
    session: u64,
    pub founders: Founders,
    summaries: BTreeMap<ProcessId, LogSummary>,
    pub roles: Option<Result<Roles, LostShard>>,
    sources: BTreeMap<ProcessId, Source>,
    ready: BTreeSet<ProcessId>,
    /// Requests for records, and answers to them.
    outgoing: VecDeque<(ProcessId, Vec<u8>)>,
    /// When the first founder ended: the round is void from then on.
    pub ended: Option<Timestamp>,
    /// When another founder had left the round, at the latest.
    pub left: Option<Timestamp>,
    pub opened: Option<Timestamp>,
}

impl Round {
    pub fn new((process, session): (ProcessId, u64), founders: Founders, own: LogSummary) -> Self {
        let mut round = Self {
            process,
            session,
            founders,
            summaries: [(process, own)].into_iter().collect(),
            roles: None,
            sources: BTreeMap::new(),
            ready: BTreeSet::new(),
            outgoing: VecDeque::new(),
            ended: None,
            left: None,
            opened: None,
        };
        round.assign();
        round
    }

    /// Returns the session of the proposer, which identifies the round.
    pub fn id(&self) -> u64 {
        self.founders.first().map_or(0, |(_, session)| *session)
    }

    fn session_of(&self, process: ProcessId) -> Option<u64> {
        self.founders.iter().find(|(founder, _)| *founder == process).map(|(_, session)| *session)
    }

    /// Returns the own role, once all logs are known.
    pub fn role(&self) -> Option<Result<Role, LostShard>> {
        let roles = self.roles.as_ref()?;
        Some(roles.as_ref().map(|roles| roles.of(self.process)).map_err(|lost| *lost))
    }

    /// Notes that a process ended. Its session is the time when it started.
    pub fn on_ended(&mut self, process: ProcessId, at: Timestamp) {
        if self.session_of(process).is_some_and(|session| at.as_ns() > session) {
            self.ended = Some(self.ended.map_or(at, |earlier| earlier.min(at)));
        }
    }

    /// Notes that a process was in a session. If it has left the round, the store may have been
    /// opened before.
    pub fn on_session(&mut self, process: ProcessId, session: u64, at: Timestamp) {
        if self.session_of(process).is_some_and(|known| session > known) {
            self.left = self.left.or(Some(at));
        }
    }

    /// Returns the summary and the readiness of this process, encoded.
    pub fn state(&self) -> Vec<u8> {
        let summary = self.summaries[&self.process].clone();
        let is_ready = self.ready.contains(&self.process);
        StartMessage::States { round: self.id(), summary, is_ready }.to_bytes(self.session)
    }

    pub fn on_state(&mut self, from: ProcessId, summary: LogSummary, is_ready: bool) {
        self.summaries.entry(from).or_insert(summary);
        if is_ready {
            self.ready.insert(from);
        }
        self.assign();
    }

    /// Assigns the roles once all logs are known.
    fn assign(&mut self) {
        if self.roles.is_some() || self.summaries.len() < self.founders.len() {
            return;
        }
        let roles = Roles::assign(&self.summaries, self.id());
        if let Ok(roles) = &roles
            && let Some((_, own_end)) = roles.usable.get(&self.process)
            && roles.of(self.process) != Role::CatchUp
        {
            let others = roles.usable.iter().filter(|(process, _)| **process != self.process);
            for (process, _) in others.filter(|(_, (_, end))| end > own_end) {
                let records = VecDeque::new();
                let source = Source { after: *own_end, is_ended: false, records };
                self.sources.insert(*process, source);
            }
        }
        self.roles = Some(roles);
        self.ask_again();
    }

    /// Asks all founders that have not answered yet.
    pub fn ask_again(&mut self) {
        self.outgoing.clear();
        let sources: Vec<ProcessId> = self.sources.keys().copied().collect();
        sources.into_iter().for_each(|source| self.ask(source));
    }

    fn ask(&mut self, process: ProcessId) {
        let round = self.id();
        let waiting = self.sources.get(&process);
        let waiting = waiting.filter(|one| !one.is_ended && one.records.is_empty());
        if let Some(source) = waiting {
            let wants = StartMessage::Wants { round, after: source.after };
            self.outgoing.push_back((process, wants.to_bytes(self.session)));
        }
    }

    /// Answers a founder with the records of this log that it lacks.
    pub fn on_wants(&mut self, from: ProcessId, after: Option<Position>, records: &[Record]) {
        let Some(Ok(roles)) = &self.roles else { return };
        let (Some((_, own_end)), Some((shard, _))) =
            (roles.usable.get(&self.process), roles.usable.get(&from))
        else {
            return;
        };
        let first = records.partition_point(|record| Some(record.position()) <= after);
        let valid = records.partition_point(|record| Some(record.position()) <= *own_end);
        let (mut part, mut len, mut until) = (Vec::new(), 0, None);
        for (scanned, record) in records[first.min(valid)..valid].iter().enumerate() {
            if scanned == SCANNED_MAX || len >= PART_LEN {
                until = scanned.checked_sub(1).map(|last| records[first + last].position());
                break;
            }
            if record.concerns(*shard) {
                len += record.request.len();
                part.push(Record { members: None, ..record.clone() });
            }
        }
        let holds = StartMessage::Holds { round: self.id(), after, until, records: part };
        self.outgoing.push_back((from, holds.to_bytes(self.session)));
    }

    pub fn on_holds(
        &mut self,
        from: ProcessId,
        (after, until): (Option<Position>, Option<Position>),
        records: Vec<Record>,
    ) {
        let Some(source) = self.sources.get_mut(&from) else { return };
        if source.is_ended || source.after != after || !source.records.is_empty() {
            // The answer was repeated.
            return;
        }
        source.records.extend(records);
        match until {
            Some(until) => source.after = Some(until),
            None => source.is_ended = true,
        }
        self.ask(from);
    }

    /// Returns the next record that this process lacks, in the order of execution.
    pub fn next_missing(&mut self) -> Option<Record> {
        // What a source may still send is later than its `after`.
        let open = self.sources.values().filter(|source| !source.is_ended);
        let open = open.filter(|source| source.records.is_empty());
        let complete_until = open.map(|source| source.after).min();
        let first = |source: &Source| source.records.front().map(Record::position);
        let next = self.sources.values().filter_map(first).min()?;
        if complete_until.is_some_and(|until| Some(next) > until) {
            return None;
        }
        let mut found = None;
        let mut to_ask = Vec::new();
        for (process, source) in &mut self.sources {
            if first(source) == Some(next) {
                found = source.records.pop_front();
                to_ask.push(*process);
            }
        }
        to_ask.into_iter().for_each(|process| self.ask(process));
        found
    }

    /// Returns whether the log has all that others hold.
    pub fn is_complete(&self) -> bool {
        let is_done = |source: &Source| source.is_ended && source.records.is_empty();
        matches!(&self.roles, Some(Ok(_))) && self.sources.values().all(is_done)
    }

    /// Notes that this process is ready to serve.
    pub fn set_ready(&mut self) {
        self.ready.insert(self.process);
    }

    /// Returns whether all founders are ready to serve.
    pub fn are_all_ready(&self) -> bool {
        self.ready.len() == self.founders.len()
    }

    /// Returns the next message for another founder.
    pub fn poll(&mut self) -> Option<ReplicaScattering> {
        let message = self.outgoing.pop_front()?;
        Some(ReplicaScattering::best_effort([message].to_vec()))
    }

    /// Returns the founders that this one waits for.
    pub fn missing(&self) -> impl Iterator<Item = ProcessId> {
        let founders = self.founders.iter().map(|(process, _)| *process);
        founders.filter(|process| match self.ready.contains(&self.process) {
            true => !self.ready.contains(process),
            false => !self.summaries.contains_key(process),
        })
    }
}
