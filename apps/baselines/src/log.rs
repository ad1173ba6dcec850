//! The log of a shard at its primary.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use onepipe_base::{Mono, ProcessId};

use crate::locks::Owner;
use crate::message::{Ack, Change, Entry, OutgoingMessage};
use crate::timer::Timeouts;

/// Limit on the entries that are sent again to a backup at once.
const BURST_MAX: usize = 64;

/// Number of duplicate acknowledgements after which a missing entry is sent again, as in fast
/// retransmit (RFC 5681).
const DUPLICATE_ACKS: u32 = 3;

/// A backup, as its primary knows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Progress {
    ack: Ack,
    deadline: Option<Mono>,
    repeated: u32,
    /// Number of acknowledgements since the last progress that show a gap.
    duplicate_acks: u32,
    /// Entries up to this index were sent more than once, so that their acknowledgement says
    /// nothing about the response time.
    repeated_to: u64,
}

/// The log: the entries that some backup lacks, and the transactions that wait for them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Log {
    backups: BTreeMap<ProcessId, Progress>,
    /// The encoded entries after the last one that all backups have, and when each was sent.
    entries: VecDeque<(Vec<u8>, Mono)>,
    /// Index of the last entry.
    last: u64,
    /// Transactions whose requests are answered when all backups have an entry, by its index.
    waiting: BTreeSet<(u64, Owner)>,
    timeouts: Timeouts,
}

impl Log {
    pub fn new(backups: impl Iterator<Item = ProcessId>, timeout_min_ns: u64) -> Self {
        let ack = Ack { applied: 0, beyond: u64::MAX };
        let progress =
            Progress { ack, deadline: None, repeated: 0, duplicate_acks: 0, repeated_to: 0 };
        Self {
            backups: backups.map(|backup| (backup, progress.clone())).collect(),
            entries: VecDeque::new(),
            last: 0,
            waiting: BTreeSet::new(),
            timeouts: Timeouts::new(timeout_min_ns),
        }
    }

    /// Appends an entry, and sends it to the backups. Returns its index.
    pub fn append(
        &mut self,
        now: Mono,
        (owner, change): (Owner, Change),
        outbox: &mut VecDeque<OutgoingMessage>,
    ) -> u64 {
        self.last += 1;
        if self.backups.is_empty() {
            return self.last;
        }
        let payload = Entry { index: self.last, owner, change }.to_bytes();
        for (backup, progress) in &mut self.backups {
            outbox.push_back(OutgoingMessage { to: *backup, payload: payload.clone() });
            let deadline = self.timeouts.deadline(now, *backup, 0);
            progress.deadline.get_or_insert(deadline);
        }
        self.entries.push_back((payload, now));
        self.last
    }

    /// Whether all backups have the entries up to `index`.
    pub fn is_replicated(&self, index: u64) -> bool {
        index <= self.replicated()
    }

    /// Returns the index up to which all backups have all entries.
    fn replicated(&self) -> u64 {
        let applied = self.backups.values().map(|progress| progress.ack.applied);
        applied.min().unwrap_or(self.last)
    }

    /// Lets a transaction wait for an entry.
    pub fn wait(&mut self, index: u64, owner: Owner) {
        self.waiting.insert((index, owner));
    }

    /// Handles an acknowledgement. Returns the transactions that have waited for it.
    pub fn on_ack(&mut self, now: Mono, from: ProcessId, ack: Ack) -> Vec<(u64, Owner)> {
        let first = self.last - self.entries.len() as u64 + 1;
        let Some(progress) = self.backups.get_mut(&from) else { return Vec::new() };
        if ack.applied < progress.ack.applied || ack.applied > self.last {
            return Vec::new();
        }
        let has_progress = ack.applied > progress.ack.applied;
        progress.ack = ack;
        if has_progress {
            // An entry behind a lost one was applied late, so that its time is no response time.
            let is_behind_gap = progress.repeated > 0 || progress.duplicate_acks > 0;
            if ack.applied > progress.repeated_to
                && !is_behind_gap
                && let Some((_, sent_at)) = self.entries.get((ack.applied - first) as usize)
            {
                self.timeouts.on_response(now, from, *sent_at);
            }
            (progress.repeated, progress.duplicate_acks) = (0, 0);
            let is_waiting = ack.applied < self.last;
            progress.deadline = is_waiting.then(|| self.timeouts.deadline(now, from, 0));
        } else if ack.beyond != u64::MAX {
            progress.duplicate_acks += 1;
            if progress.duplicate_acks == DUPLICATE_ACKS {
                progress.deadline = Some(now);
            }
        }
        let replicated = self.replicated();
        while self.last - (self.entries.len() as u64) < replicated {
            self.entries.pop_front();
        }
        let later = match replicated.checked_add(1) {
            Some(next) => self.waiting.split_off(&(next, Owner::FIRST)),
            None => BTreeSet::new(),
        };
        core::mem::replace(&mut self.waiting, later).into_iter().collect()
    }

    /// Sends entries again to each backup whose acknowledgement is late: those that the backup
    /// lacks before the first one that it has received out of order. Returns their number.
    pub fn handle_timeout(&mut self, now: Mono, outbox: &mut VecDeque<OutgoingMessage>) -> u64 {
        let first = self.last - self.entries.len() as u64 + 1;
        let mut sent = 0;
        for (backup, progress) in &mut self.backups {
            if progress.deadline.is_none_or(|deadline| now < deadline) {
                continue;
            }
            progress.repeated += 1;
            progress.deadline = Some(self.timeouts.deadline(now, *backup, progress.repeated));
            let next = progress.ack.applied + 1;
            let end = progress.ack.beyond.min(self.last + 1);
            let skipped = (next - first) as usize;
            let count = (end.saturating_sub(next) as usize).min(BURST_MAX);
            for (payload, _) in self.entries.iter().skip(skipped).take(count) {
                outbox.push_back(OutgoingMessage { to: *backup, payload: payload.clone() });
                sent += 1;
            }
            progress.repeated_to = progress.repeated_to.max(progress.ack.applied + count as u64);
        }
        sent
    }

    /// Returns when [`Log::handle_timeout`] is to be called.
    pub fn poll_timeout(&self) -> Option<Mono> {
        self.backups.values().filter_map(|progress| progress.deadline).min()
    }
}
