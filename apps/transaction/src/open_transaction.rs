//! An unfinished transaction of a client.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{Mono, ProcessId, ScatteringId, Timestamp};

use crate::kind::{Kind, ReadMode};
use crate::placement::{Placement, REPLICAS_MAX};
use crate::reply::{Answer, Reply};
use crate::request::{Request, RequestKind};

/// What has become of a transaction after a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Replies are missing.
    Waits,
    /// The transaction took place at this timestamp.
    Complete(Timestamp),
    /// All shards have answered, but at no timestamp are all answers exact.
    Inexact,
    /// All replicas of a shard that were to answer have ended: the transaction must be sent again.
    AllEnded,
}

/// Some of the replicas of a shard, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Replicas {
    processes: [ProcessId; REPLICAS_MAX],
    count: usize,
}

/// What stands where there is no replica.
const NO_PROCESS: ProcessId = ProcessId(0);

impl Replicas {
    const NONE: Self = Self { processes: [NO_PROCESS; REPLICAS_MAX], count: 0 };

    fn iter(&self) -> impl Iterator<Item = ProcessId> {
        self.processes.into_iter().take(self.count)
    }

    fn len(&self) -> usize {
        self.count
    }

    fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn contains(&self, process: ProcessId) -> bool {
        self.iter().any(|other| other == process)
    }

    /// Adds a replica. A shard has no more of them than there is space for.
    fn insert(&mut self, process: ProcessId) {
        if !self.contains(process)
            && let Some(slot) = self.processes.get_mut(self.count)
        {
            *slot = process;
            self.count += 1;
            self.processes[..self.count].sort_unstable();
        }
    }

    /// Removes a replica. Returns whether it was there.
    fn remove(&mut self, process: ProcessId) -> bool {
        let Some(index) = self.iter().position(|other| other == process) else { return false };
        self.processes.copy_within(index + 1..self.count, index);
        self.count -= 1;
        // Equal sets have equal bytes.
        self.processes[self.count] = NO_PROCESS;
        true
    }
}

/// The replies of one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shard {
    shard: u16,
    awaited: Replicas,
    /// Replicas that have answered: a repeated answer counts once.
    answered: Replicas,
    results: Vec<u8>,
    /// The interval in which the results are exact. A write is exact at its timestamp only.
    from: Option<Timestamp>,
    until: Option<Timestamp>,
}

impl Shard {
    fn new(shard: u16) -> Self {
        let (awaited, answered) = (Replicas::NONE, Replicas::NONE);
        Self { shard, awaited, answered, results: Vec::new(), from: None, until: None }
    }
}

/// An unfinished transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenTransaction {
    pub kind: Kind,
    pub parts: Vec<(u16, Vec<u8>)>,
    pub attempt: u32,
    /// The view with which the current attempt at a write was sent.
    pub view: Option<Timestamp>,
    pub scattering: Option<(bool, ScatteringId)>,
    pub deadline: Option<Mono>,
    /// The barrier that the current attempt waits for, if it is a snapshot read.
    pub after: Option<Timestamp>,
    /// Whether the transaction waits to be sent.
    pub is_queued: bool,
    /// When the last attempt was composed, and how many have failed.
    pub sent_at: Option<Mono>,
    pub failures: u32,
    /// How often replicas were asked for the reply to this write.
    pub asked: u32,
    /// How often a shard was searched for a replica since the last attempt, as none is up.
    pub searches: u32,
    /// Whether the deadline is the time of the next attempt.
    pub is_deferred: bool,
    /// Replicas that have given [`Answer::Stranded`].
    pub stranded: BTreeSet<ProcessId>,
    /// By ascending shard, from the first attempt on.
    shards: Vec<Shard>,
}

impl OpenTransaction {
    pub fn new(kind: Kind, parts: Vec<(u16, Vec<u8>)>) -> Self {
        Self {
            kind,
            parts,
            attempt: 0,
            view: None,
            scattering: None,
            deadline: None,
            after: None,
            is_queued: true,
            sent_at: None,
            failures: 0,
            asked: 0,
            searches: 0,
            is_deferred: false,
            stranded: BTreeSet::new(),
            shards: Vec::new(),
        }
    }

    /// Returns the kind of the current attempt's request. Snapshot reads see every write below
    /// `known`.
    pub fn request_kind(&self, snapshots_max: u32, known: Option<Timestamp>) -> RequestKind {
        match (self.kind, known) {
            (Kind::Write, _) => RequestKind::Write,
            (Kind::Read(mode), Some(known))
                if (mode == ReadMode::Snapshot && self.attempt <= snapshots_max)
                    || makes(Mistake::SnapshotForStrict) =>
            {
                RequestKind::SnapshotRead(known)
            }
            (Kind::Read(_), _) => RequestKind::StrictRead,
        }
    }

    /// Begins an attempt: awaits the replies of all replicas that are up, or of one of each shard
    /// for a read. Returns the shard if none of its replicas is up.
    pub fn begin(&mut self, placement: &Placement, number: u64) -> Result<(), u16> {
        self.shards.reserve_exact(self.parts.len());
        for (index, (shard, _)) in self.parts.iter().enumerate() {
            let up = placement.up(*shard).count();
            if up == 0 {
                return Err(*shard);
            }
            if self.shards.len() == index {
                self.shards.push(Shard::new(*shard));
            }
            let entry = &mut self.shards[index];
            if self.kind == Kind::Write {
                // Replies to an earlier attempt still count: a write is executed once.
                entry.awaited = Replicas::NONE;
                placement.up(*shard).for_each(|process| entry.awaited.insert(process));
            } else {
                // Each attempt asks the next replica.
                let turn = (number + u64::from(self.attempt)) % up as u64;
                *entry = Shard::new(*shard);
                placement.up(*shard).nth(turn as usize).into_iter().for_each(|process| {
                    entry.awaited.insert(process);
                });
            }
        }
        Ok(())
    }

    /// Returns the request as a message to each awaited replica. All get the whole transaction if
    /// it is a write of a durable store, so that the log of each shard says what the others have
    /// to execute.
    pub fn messages(&self, request: &Request<'_>, is_durable: bool) -> Vec<(ProcessId, Vec<u8>)> {
        let is_whole = self.kind == Kind::Write && is_durable;
        let awaited = self.shards.iter().map(|entry| entry.awaited.len()).sum();
        let mut messages: Vec<(ProcessId, Vec<u8>)> = Vec::with_capacity(awaited);
        for (index, entry) in self.shards.iter().enumerate() {
            let is_last = index + 1 == self.shards.len();
            if is_last && self.attempt > 1 && makes(Mistake::ShardMissed) {
                continue;
            }
            for process in entry.awaited.iter() {
                let payload = match (request.part(entry.shard), messages.first()) {
                    (Some(part), _) if !is_whole => {
                        request.with_parts([(entry.shard, part)].to_vec()).to_bytes()
                    }
                    (_, Some((_, whole))) if is_whole => Vec::clone(whole),
                    _ => request.to_bytes(),
                };
                messages.push((process, payload));
            }
        }
        messages
    }

    /// Returns the replicas whose replies are missing.
    pub fn awaited(&self) -> impl Iterator<Item = ProcessId> {
        self.shards.iter().flat_map(|entry| entry.awaited.iter())
    }

    /// Returns whether a reply of this replica is missing.
    pub fn is_awaited(&self, replica: ProcessId) -> bool {
        self.shards.iter().any(|entry| entry.awaited.contains(replica))
    }

    /// Handles a reply of `from`. Returns false if it differs from that of another replica of the
    /// shard; the shard as an error if it refuses the transaction.
    pub fn on_reply(&mut self, from: ProcessId, reply: &Reply<'_>) -> Result<bool, u16> {
        let is_read = self.kind != Kind::Write;
        let entry = self.shards.iter_mut().find(|entry| entry.shard == reply.shard);
        let Some(entry) = entry else { return Ok(true) };
        if (is_read && reply.attempt != self.attempt) || !entry.awaited.contains(from) {
            return Ok(true);
        }
        let (interval, results) = match reply.answer {
            Answer::Refused => return Err(reply.shard),
            Answer::Written { at, results } if !is_read => ((at, at.wrapping_add_ns(1)), results),
            Answer::Read { from, until, results } if is_read => ((from, until), results),
            _ => return Ok(true),
        };
        entry.awaited.remove(from);
        let is_first = entry.answered.is_empty();
        entry.answered.insert(from);
        if is_first {
            (entry.from, entry.until) = (Some(interval.0), Some(interval.1));
            entry.results = results.to_vec();
        }
        Ok(entry.from == Some(interval.0) && entry.results == results)
    }

    /// Returns what has become of the transaction by the replies so far.
    pub fn progress(&self, acks_min: usize) -> Progress {
        if self.shards.iter().any(|entry| entry.answered.is_empty() && entry.awaited.is_empty()) {
            return Progress::AllEnded;
        }
        let is_complete = |entry: &Shard| {
            let is_complete = entry.awaited.is_empty() || entry.answered.len() >= acks_min;
            is_complete || (self.is_in_doubt() && makes(Mistake::OneReplyOfAll))
        };
        if self.shards.is_empty() || !self.shards.iter().all(is_complete) {
            return Progress::Waits;
        }
        let from = self.shards.iter().filter_map(|entry| entry.from).max();
        let until = self.shards.iter().filter_map(|entry| entry.until).min();
        match (from, until) {
            (Some(from), Some(until)) if from < until || makes(Mistake::ExactnessIgnored) => {
                // A snapshot read takes place after the client's own writes, which are below
                // `after`.
                let after = self.after.map_or(from, |after| after.min(until).saturating_sub_ns(1));
                Progress::Complete(from.max(after))
            }
            _ => Progress::Inexact,
        }
    }

    /// Whether at least one shard has answered a write.
    fn is_in_doubt(&self) -> bool {
        self.kind == Kind::Write && self.shards.iter().any(|entry| !entry.answered.is_empty())
    }

    /// Stops awaiting replies of `process`. Returns whether one was awaited.
    pub fn on_process_ended(&mut self, process: ProcessId) -> bool {
        let mut was_awaited = false;
        for entry in &mut self.shards {
            was_awaited |= entry.awaited.remove(process);
        }
        was_awaited
    }

    pub fn take_results(&mut self) -> Vec<(u16, Vec<u8>)> {
        let take = |entry: Shard| (entry.shard, entry.results);
        core::mem::take(&mut self.shards).into_iter().map(take).collect()
    }

    /// Replaces the deadline, which `deadlines` lists under the transaction's number.
    pub fn set_deadline(
        &mut self,
        deadlines: &mut BTreeSet<(Mono, u64)>,
        number: u64,
        deadline: Option<Mono>,
    ) {
        if let Some(previous) = core::mem::replace(&mut self.deadline, deadline) {
            deadlines.remove(&(previous, number));
        }
        if let Some(deadline) = deadline {
            deadlines.insert((deadline, number));
        }
    }
}
