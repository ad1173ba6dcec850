//! A replica of a log: accepts entries in the order of timestamps, and states what its log has.

mod catch_up;
mod round;
mod store;
mod transfer;
mod trim;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::ops::Range;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{Mono, ProcessId, Timestamp};

use crate::entries::{Accepted, Entries};
use crate::entry::{Entry, EntryId, Session};
use crate::message::{Header, Reply, Request, Status};
use crate::record::{Change, Record};
use crate::scattering::{Scattering, ScatteringKind};
use crate::view::View;
use catch_up::CatchUp;
use round::Round;
pub use store::{RestoreError, Stored};
pub use transfer::{Install, StateRead};
use trim::Progress;

/// Limit on the entries about which one request asks.
const ASKED_MAX: u64 = 1 << 12;

/// How a replica runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReplicaOptions {
    /// Whether replies and statements wait until what they depend on is stored. Default true.
    pub is_durable: bool,
    /// Time after which a replica that catches up asks again, and a failed reliable scattering is
    /// repeated, in ns. Default 10 ms.
    pub timeout_ns: u64,
    /// Limit on the payloads in one reply to a read, in bytes; one entry may exceed it. Also the
    /// limit on a part of the state. Default 32 KiB.
    pub read_bytes_max: usize,
    /// Number of entries after which the committed length is stored again. It limits what replicas
    /// exchange when all of them have ended. Default 256.
    pub committed_interval: u64,
}

impl Default for ReplicaOptions {
    fn default() -> Self {
        Self {
            is_durable: true,
            timeout_ns: 10_000_000,
            read_bytes_max: 1 << 15,
            committed_interval: 256,
        }
    }
}

/// Counters of a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReplicaStats {
    /// Accepted entries.
    pub accepted: u64,
    /// Entries that the log had already.
    pub repeated: u64,
    /// Entries refused because one of the same client before was missing.
    pub gaps: u64,
    /// Requests of another view.
    pub outdated: u64,
    /// Messages that are no requests, or contradict the stable beginning of the log.
    pub malformed: u64,
    /// Views that have begun.
    pub views: u64,
    /// Entries that were trimmed.
    pub trimmed: u64,
    /// States that were read from another replica.
    pub installed: u64,
}

/// What a replica takes part in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Role {
    /// The replica is a member of the view, and has the whole log.
    Member,
    /// The replica is no member, or a member that has not the whole log yet.
    CatchingUp(Box<CatchUp>),
}

/// A replica of a log. Its driver passes each delivered message to [`LogReplica::on_message`], in
/// the order of delivery, failures to [`LogReplica::on_ended`], then the commit barrier to
/// [`LogReplica::on_barrier`]; stores what [`LogReplica::poll_record`] returns; and sends what
/// [`LogReplica::poll_scattering`] returns. A process that was excluded from the fabric calls
/// [`LogReplica::rejoin`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LogReplica {
    process: ProcessId,
    replicas: BTreeSet<ProcessId>,
    options: ReplicaOptions,
    role: Role,
    view: View,
    entries: Entries,
    /// A view was stored when the replica was restored.
    has_stored_view: bool,
    /// The view is about to change.
    round: Option<Round>,
    /// When processes have ended, as far as reliable messages were delivered.
    ended: BTreeMap<ProcessId, Timestamp>,
    /// When members have become such: an earlier end, of which the fabric notifies late, is that of
    /// a previous incarnation.
    since: BTreeMap<ProcessId, Timestamp>,
    /// Ends at timestamps that reliable messages have not reached.
    ending: BTreeSet<(Timestamp, ProcessId)>,
    /// The replica has asked for a new view.
    has_synced: bool,
    /// Reliable scatterings that have failed, and are repeated at the deadline.
    failed: BTreeSet<ScatteringKind>,
    /// Clients whose requests were not answered.
    waiting: BTreeSet<Session>,
    records: VecDeque<Record>,
    recorded: u64,
    /// The entries recorded in this view, each with its record, in the order of the records. Those
    /// at the beginning that were trimmed are not there any more.
    recorded_entries: VecDeque<(u64, EntryId)>,
    stored: u64,
    /// The last committed length that is recorded.
    recorded_committed: u64,
    /// What the members of the view have applied.
    progress: Progress,
    /// Number of entries that the state includes durably.
    applied: u64,
    /// Whether a state applies the entries.
    has_state: bool,
    /// A state of another replica was read, and is not durable yet.
    awaits_install: bool,
    /// Number of entries that a state must have applied after it was opened, or read from another
    /// replica: it may include the effects of any of them.
    consistent_len: u64,
    /// Questions of other replicas for parts of the state.
    state_reads: VecDeque<StateRead>,
    /// What is to be done with the state, each with the record that must be stored before.
    installs: VecDeque<(u64, Install)>,
    /// Replies, each with the record that must be stored before, in the order of these.
    replies: VecDeque<(u64, Scattering)>,
    unsent: VecDeque<Scattering>,
    now: Mono,
    deadline: Option<Mono>,
    stats: ReplicaStats,
}

impl LogReplica {
    /// Creates a member of the first view, with an empty log. All replicas begin so at once.
    ///
    /// # Panics
    /// If there are no replicas or more than [`crate::REPLICAS_MAX`].
    pub fn new(process: ProcessId, replicas: BTreeSet<ProcessId>, options: ReplicaOptions) -> Self {
        Self {
            process,
            view: View::first(replicas.iter().copied()),
            replicas,
            options,
            role: Role::Member,
            entries: Entries::default(),
            has_stored_view: false,
            round: None,
            ended: BTreeMap::new(),
            since: BTreeMap::new(),
            ending: BTreeSet::new(),
            has_synced: false,
            failed: BTreeSet::new(),
            waiting: BTreeSet::new(),
            records: VecDeque::new(),
            recorded: 0,
            recorded_entries: VecDeque::new(),
            stored: 0,
            recorded_committed: 0,
            progress: Progress::default(),
            applied: 0,
            has_state: false,
            awaits_install: false,
            consistent_len: 0,
            state_reads: VecDeque::new(),
            installs: VecDeque::new(),
            replies: VecDeque::new(),
            unsent: VecDeque::new(),
            now: Mono::from_ns(0),
            deadline: None,
            stats: ReplicaStats::default(),
        }
    }

    /// Handles a delivered message: of the reliable service if `is_reliable`. Anything that is no
    /// message of a log is counted and dropped.
    pub fn on_message(
        &mut self,
        is_reliable: bool,
        at: Timestamp,
        from: ProcessId,
        payload: &[u8],
    ) {
        if is_reliable {
            // No reliable message at or above the end of a process precedes that end.
            self.apply_ends(at);
        }
        match Request::parse(payload) {
            Some(request) if request.is_reliable() == is_reliable => match request {
                Request::Append(header, number, payload) => {
                    self.on_entry((at, from), &header, (number, at), payload);
                }
                Request::Repair(header, number, first, payload) => {
                    self.on_entry((at, from), &header, (number, first), payload);
                }
                Request::Ask(header, first, last) => {
                    if let Some(client) = self.admit((at, from), &header) {
                        let end = last.min(first.saturating_add(ASKED_MAX)).saturating_add(1);
                        self.reply(client, header.request, first..end);
                    }
                }
                Request::Finished(header) => {
                    self.admit((at, from), &header);
                }
                Request::Applied(applied) => self.on_peer_applied(from, &applied),
                Request::ReadState(read) => self.on_read_state(from, &read),
                Request::Read(request, index) => self.on_read(from, request, index),
                Request::Sync(view) => self.on_sync(&view),
                Request::Statement(view, joiners, silent, statement) => {
                    self.on_statement(from, &view, joiners, (silent, statement));
                }
                Request::Join(view) => self.on_join(at, from, &view),
                Request::Leave => self.on_leave(at, from),
            },
            Some(_) => self.stats.malformed += 1,
            None => match Reply::parse(payload) {
                Some(Reply::Entries(entries)) if !is_reliable => self.on_entries(from, &entries),
                Some(Reply::State(part)) if !is_reliable => self.on_state(from, part),
                _ => self.stats.malformed += 1,
            },
        }
        self.advance();
    }

    /// Notes that all reliable messages below a timestamp were delivered.
    pub fn on_barrier(&mut self, commit: Timestamp) {
        self.apply_ends(commit);
        self.advance();
    }

    /// Notes that a process has failed or left, by decision of the fabric: none of its reliable
    /// messages at or above `at` is delivered.
    pub fn on_ended(&mut self, process: ProcessId, at: Timestamp) {
        self.ending.insert((at, process));
    }

    /// Decides on a request of a client. Returns the client, unless the request is not served.
    fn admit(&mut self, (at, from): (Timestamp, ProcessId), header: &Header) -> Option<Session> {
        let client = Session { process: from, session: header.session };
        let has_ended = |end: Option<&Timestamp>| end.is_some_and(|end| at < *end);
        let will_end = self.ending.iter().find(|(_, process)| *process == from);
        if has_ended(self.ended.get(&from)) || has_ended(will_end.map(|(end, _)| end)) {
            return None;
        }
        let is_frozen = self.round.is_some() && !makes(Mistake::StatedBeforeFrozen);
        if self.role != Role::Member || is_frozen || header.view.supersedes(&self.view) {
            // The client is notified when the view has begun.
            self.waiting.insert(client);
            return None;
        }
        if header.view != self.view && !makes(Mistake::StaleViewAccepted) {
            self.stats.outdated += 1;
            self.reply(client, header.request, 0..0);
            return None;
        }
        self.entries.finish(client, header.finished);
        let (len, checksum) = header.stable;
        self.on_committed(len, checksum);
        Some(client)
    }

    /// Notes that the beginning of the log is committed, as a client of this program knows. Other
    /// clients' messages have that with them.
    pub fn on_committed(&mut self, len: u64, checksum: u64) {
        if !self.entries.set_committed(len, checksum) {
            self.stats.malformed += 1;
            return;
        }
        let committed_len = self.entries.committed_len();
        if committed_len >= self.recorded_committed.saturating_add(self.options.committed_interval)
        {
            self.recorded_committed = committed_len;
            self.record(Change::Committed(committed_len));
        }
    }

    fn on_entry(
        &mut self,
        received: (Timestamp, ProcessId),
        header: &Header,
        (number, at): (u64, Timestamp),
        payload: &[u8],
    ) {
        let Some(client) = self.admit(received, header) else { return };
        let entry = Entry { id: EntryId { at, client, number }, payload: payload.to_vec() };
        match self.entries.accept(entry.clone()) {
            Accepted::New => {
                self.stats.accepted += 1;
                self.record(Change::Entry(entry));
            }
            Accepted::Repeated => self.stats.repeated += 1,
            Accepted::Gap => self.stats.gaps += 1,
            Accepted::Stable => self.stats.malformed += 1,
        }
        self.reply(client, header.request, number..number.saturating_add(1));
    }

    /// Replies with the positions of a client's entries, once the log up to here is stored.
    fn reply(&mut self, to: Session, request: u64, numbers: Range<u64>) {
        let position = |number| Some((number, self.entries.position(to, number)?));
        let last = self.entries.last(to);
        let numbers = numbers.start..numbers.end.min(last.saturating_add(1));
        let positions: Vec<_> = numbers.filter_map(position).collect();
        let (view, session) = (self.view.clone(), to.session);
        let status = Status { view, session, request, last, positions };
        self.replies.push_back((
            self.recorded,
            Scattering {
                kind: ScatteringKind::BestEffort,
                receivers: [to.process].to_vec(),
                payload: Reply::Status(status).to_bytes(),
            },
        ));
    }

    /// Returns the next scattering to be sent.
    pub fn poll_scattering(&mut self) -> Option<Scattering> {
        if let Some(scattering) = self.unsent.pop_front() {
            return Some(scattering);
        }
        let is_due = |(record, _): &(u64, Scattering)| {
            *record <= self.stored || makes(Mistake::AnsweredBeforeStore)
        };
        self.replies.front().is_some_and(is_due).then(|| self.replies.pop_front())?.map(|due| due.1)
    }

    /// Notes that a scattering was not delivered, or may not have been.
    pub fn on_send_failed(&mut self, kind: ScatteringKind) {
        if kind.is_reliable() {
            self.failed.insert(kind);
            self.arm();
        }
    }

    /// Handles that the deadline has passed.
    pub fn handle_timeout(&mut self, now: Mono) {
        self.now = now;
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        self.deadline = None;
        self.repeat_failed();
        if self.role == Role::Member {
            self.repeat_progress();
        } else {
            self.give_up_round();
            if !self.repeat_transfer() {
                self.read();
            }
        }
        self.advance();
    }

    /// Returns when [`LogReplica::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Mono> {
        self.deadline
    }

    fn arm(&mut self) {
        self.deadline.get_or_insert(self.now.after_ns(self.options.timeout_ns));
    }

    /// Returns a committed entry, which never changes.
    pub fn entry(&self, index: u64) -> Option<&Entry> {
        self.entries.get(index).filter(|_| index < self.committed_len())
    }

    /// Returns the number of entries that the replica knows to be committed: from the next message
    /// of the client of the last one.
    pub fn committed_len(&self) -> u64 {
        self.entries.committed_len()
    }

    /// Returns the number of entries at the beginning that were trimmed.
    pub fn base_len(&self) -> u64 {
        self.entries.base_len()
    }

    /// Returns the checksum of the first `len` entries of the log, stable or not; `None` if the log
    /// is shorter, or was trimmed behind them.
    pub fn checksum(&self, len: u64) -> Option<u64> {
        self.entries.checksum(len)
    }

    /// Returns the number of entries of the log, stable or not.
    pub fn len(&self) -> u64 {
        self.entries.len()
    }

    /// Returns whether the log has no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns an entry of the log that may be removed yet.
    pub fn unstable_entry(&self, index: u64) -> Option<&Entry> {
        self.entries.get(index)
    }

    /// Returns the timestamp of the last entry of the log.
    pub fn last_timestamp(&self) -> Option<Timestamp> {
        self.entries.last_timestamp()
    }

    /// Returns the view.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Returns whether the replica is a member with the whole log, and no view change is going on.
    pub fn is_serving(&self) -> bool {
        self.role == Role::Member && self.round.is_none()
    }

    /// Returns whether the replica is a member with the whole log.
    pub fn is_whole(&self) -> bool {
        self.role == Role::Member
    }

    /// Returns the number of entries that the state must have applied before it may be read.
    pub fn consistent_len(&self) -> u64 {
        self.consistent_len
    }

    /// Returns the counters, and starts them at 0 again.
    pub fn take_stats(&mut self) -> ReplicaStats {
        core::mem::take(&mut self.stats)
    }
}
