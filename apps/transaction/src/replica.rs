//! A replica of a shard: executes transactions in the total order, and answers.

mod image;
mod log;
mod peers;
mod snapshots;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{ProcessId, Timestamp};

use crate::catch_up::CatchUp;
use crate::feed::Feed;
use crate::members::Members;
use crate::reads::{WaitingRead, WaitingReads};
use crate::recovery::Record;
use crate::reply::{Answer, Reply};
use crate::request::{Request, RequestKind};
use crate::safe_point::SafePoint;
use crate::scattering::ReplicaScattering;
use crate::sessions::{Admission, Outcome, Sessions};
use crate::{Exact, State};
pub use image::ImageHeader;

/// Limit on the reads that wait for the commit barrier. Further ones are dropped, and their clients
/// repeat them.
const WAITING_READS_MAX: usize = 1 << 20;

/// How a replica runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReplicaOptions {
    /// Whether replies wait until what they depend on is stored: [`Replica::poll_record`].
    pub is_durable: bool,
}

/// A reply to be sent by best effort.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OutgoingReply {
    /// The client.
    pub to: ProcessId,
    /// The encoded [`Reply`].
    pub payload: Vec<u8>,
}

/// Counters of a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReplicaStats {
    /// Executed writes.
    pub writes: u64,
    /// Writes that had been executed before, and were answered again.
    pub repeated: u64,
    /// Answered reads.
    pub reads: u64,
    /// Messages that are no requests, or not for this shard.
    pub malformed: u64,
    /// Writes refused because their clients did not know of the last admitted replica, or of the
    /// opening.
    pub outdated: u64,
    /// Writes of clients with too many unfinished ones, and reads beyond the limit of waiting ones.
    pub refused: u64,
}

/// A replica of a shard. Its driver passes each delivered message to [`Replica::on_message`], in
/// the order of delivery, then the commit barrier to [`Replica::on_barrier`], and sends what
/// [`Replica::poll_reply`] returns by best effort.
///
/// A write is executed when it is delivered. A read is executed when all writes that may precede it
/// are: best effort delivers it earlier than reliable messages of lower timestamps, so that its
/// answer at delivery would miss some of them on one shard and not on another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Replica<S> {
    shard: u16,
    options: ReplicaOptions,
    state: S,
    sessions: Sessions,
    reads: WaitingReads,
    /// Position of the last executed write.
    executed: Option<(Timestamp, ProcessId)>,
    /// All writes below are executed.
    barrier: Option<Timestamp>,
    records: VecDeque<Record>,
    recorded: u64,
    /// Number of the last record after which replies may be sent.
    written: u64,
    /// Timestamp and number of each record that a loss of power may lose.
    unstored: VecDeque<(Timestamp, u64)>,
    /// Replies, each with the record that must be written before, in the order of these.
    replies: VecDeque<(u64, OutgoingReply)>,
    members: Members,
    /// The membership has changed since the last record.
    has_new_members: bool,
    /// Session of this process, stated to replicas that start.
    session: u64,
    /// Processes and sessions with which the store has started.
    founders: Vec<(ProcessId, u64)>,
    /// Replicas that catch up from this one.
    feeds: Vec<Feed>,
    /// The replica catches up itself, and does not serve.
    catch_up: Option<Box<CatchUp>>,
    /// The replica has to start again.
    is_lost: bool,
    /// The number of the last record in an image of another replica, and the image, to be stored.
    image_to_store: Option<(u64, Vec<u8>)>,
    /// What other replicas have stored.
    safe_point: Box<SafePoint>,
    unsent: VecDeque<ReplicaScattering>,
    stats: ReplicaStats,
}

impl<S: State> Replica<S> {
    /// Creates a replica of `shard` with its initial state.
    pub fn new(shard: u16, state: S, options: ReplicaOptions) -> Self {
        Self {
            shard,
            options,
            state,
            sessions: Sessions::default(),
            reads: WaitingReads::default(),
            executed: None,
            barrier: None,
            records: VecDeque::new(),
            recorded: 0,
            written: 0,
            unstored: VecDeque::new(),
            replies: VecDeque::new(),
            members: Members::default(),
            has_new_members: false,
            session: 0,
            founders: Vec::new(),
            feeds: Vec::new(),
            catch_up: None,
            is_lost: false,
            image_to_store: None,
            safe_point: Box::default(),
            unsent: VecDeque::new(),
            stats: ReplicaStats::default(),
        }
    }

    /// Handles a delivered message: of the reliable service if `is_reliable`. Anything that is not
    /// a request is counted and dropped.
    pub fn on_message(
        &mut self,
        is_reliable: bool,
        timestamp: Timestamp,
        from: ProcessId,
        payload: &[u8],
    ) {
        if is_reliable {
            // All writes below this timestamp are executed: reads that waited for them are due.
            self.advance(timestamp);
        }
        match Request::parse(payload) {
            Some(request) if is_reliable == request.kind.is_reliable() => {
                if self.catch_up.is_some() {
                    self.on_early_request(timestamp, from, &request, payload);
                } else {
                    self.on_request(timestamp, from, &request, payload);
                }
            }
            None if self.on_peer_message(timestamp, from, payload) => {}
            _ => self.stats.malformed += 1,
        }
    }

    fn on_request(
        &mut self,
        timestamp: Timestamp,
        from: ProcessId,
        request: &Request<'_>,
        payload: &[u8],
    ) {
        match request.kind {
            RequestKind::Ask => return self.answer_again(from, request),
            RequestKind::Admit | RequestKind::Fetch if !self.safe_point.may_hold_replica(from) => {
                self.stats.malformed += 1;
                return;
            }
            RequestKind::Admit => return self.on_admit(timestamp, from, request),
            RequestKind::Fetch => return self.on_fetch(from, request),
            _ => {}
        }
        let Some(part) = request.part(self.shard) else {
            self.stats.malformed += 1;
            return;
        };
        let strict_at = match request.kind {
            RequestKind::StrictRead => Some(timestamp),
            RequestKind::SnapshotRead(_) => None,
            _ => return self.on_write(timestamp, from, request, (part, payload)),
        };
        let above = match request.kind {
            RequestKind::SnapshotRead(after) => after.saturating_sub_ns(1),
            _ if makes(Mistake::ReadAtDelivery) => Timestamp::from_ns(0),
            _ => timestamp,
        };
        if self.reads.len() >= WAITING_READS_MAX {
            self.stats.refused += 1;
            return;
        }
        let (session, number, attempt) = (request.session, request.number, request.attempt);
        let part = part.to_vec();
        let read = WaitingRead { from, session, number, attempt, strict_at, part };
        self.reads.insert(above, read);
        if let Some(barrier) = self.barrier {
            self.advance(barrier);
        }
    }

    fn on_write(
        &mut self,
        at: Timestamp,
        from: ProcessId,
        request: &Request<'_>,
        (part, payload): (&[u8], &[u8]),
    ) {
        let is_outdated = request.view < self.members.view();
        if is_outdated && !makes(Mistake::OldViewAccepted) {
            // A replica that was admitted meanwhile has not received this write. All replicas of
            // all shards refuse it.
            return self.answer_outdated(from, request);
        }
        let id = (from, request.session);
        match self.sessions.admit(id, request.number, request.finished) {
            Admission::Execute => {}
            Admission::Executed if makes(Mistake::ExecutedTwice) => {}
            Admission::Executed => return self.answer_again(from, request),
            Admission::Finished => {
                self.stats.repeated += 1;
                return;
            }
            Admission::Refuse => {
                self.stats.refused += 1;
                return self.reply(from, request, 0, Answer::Refused);
            }
        }
        let mut results = Vec::new();
        self.state.execute(at, part, &mut results);
        self.executed = Some((at, from));
        self.stats.writes += 1;
        self.recorded += 1;
        if self.options.is_durable {
            self.unstored.push_back((at, self.recorded));
        }
        if self.options.is_durable || !self.feeds.is_empty() {
            let request = payload.to_vec();
            let members = core::mem::take(&mut self.has_new_members);
            let members = members && !makes(Mistake::MembersNotRecorded);
            let members = members.then(|| Box::new(self.members.clone()));
            self.record(Record { number: self.recorded, at, from, request, members });
        }
        self.reply(from, request, 0, Answer::Written { at, results: &results });
        let outcome = Outcome { at, results, record: self.recorded };
        self.sessions.executed(id, request.number, outcome);
    }

    fn answer_again(&mut self, from: ProcessId, request: &Request<'_>) {
        self.stats.repeated += 1;
        let id = (from, request.session);
        if let Some(outcome) = self.sessions.outcome(id, request.number).cloned() {
            let answer = Answer::Written { at: outcome.at, results: &outcome.results };
            let reply = Self::encode(self.shard, request, 0, answer);
            self.queue(outcome.record, from, reply);
        } else if request.view < self.members.view() {
            // The write was refused, and the answer lost.
            self.answer_outdated(from, request);
        }
    }

    fn answer_outdated(&mut self, from: ProcessId, request: &Request<'_>) {
        self.stats.outdated += 1;
        let members = self.members.to_bytes();
        self.reply(from, request, request.attempt, Answer::Outdated(&members));
    }

    fn reply(&mut self, to: ProcessId, request: &Request<'_>, attempt: u32, answer: Answer<'_>) {
        let reply = Self::encode(self.shard, request, attempt, answer);
        self.queue(self.recorded, to, reply);
    }

    fn encode(shard: u16, request: &Request<'_>, attempt: u32, answer: Answer<'_>) -> Vec<u8> {
        let (session, number) = (request.session, request.number);
        Reply { session, number, attempt, shard, answer }.to_bytes()
    }

    fn queue(&mut self, record: u64, to: ProcessId, payload: Vec<u8>) {
        // Most replies depend on the last record. A read may depend on an earlier one.
        let is_last = self.replies.back().is_none_or(|(last, _)| *last <= record);
        let position = match is_last {
            true => self.replies.len(),
            false => self.replies.partition_point(|(earlier, _)| *earlier <= record),
        };
        self.replies.insert(position, (record, OutgoingReply { to, payload }));
    }

    /// Notes that all writes below `barrier` have been passed to [`Replica::on_message`], and
    /// answers the reads that have waited for this.
    pub fn on_barrier(&mut self, barrier: Timestamp) {
        self.advance(barrier);
    }

    fn advance(&mut self, barrier: Timestamp) {
        let barrier = self.barrier.map_or(barrier, |known| known.max(barrier));
        self.barrier = Some(barrier);
        if self.catch_up.is_some() {
            return;
        }
        for read in self.reads.due(barrier) {
            self.answer_read(barrier, &read);
        }
    }

    fn answer_read(&mut self, barrier: Timestamp, read: &WaitingRead) {
        let last = barrier.saturating_sub_ns(1);
        // A strict read that arrives after later writes takes place after them. The last of them
        // may be at the barrier itself.
        let at = read.strict_at.unwrap_or(last);
        let at = self.executed.map_or(at, |(executed, _)| at.max(executed));
        let mut results = Vec::new();
        let exact: Exact = self.state.read(at, &read.part, &mut results);
        let from = exact.from.unwrap_or(Timestamp::from_ns(0));
        let from = read.strict_at.map_or(from, |strict_at| from.max(strict_at));
        let until = exact.until.map_or(barrier, |until| until.min(barrier));
        self.stats.reads += 1;
        let answer = Answer::Read { from, until, results: &results };
        let (session, number, attempt) = (read.session, read.number, read.attempt);
        let payload = Reply { session, number, attempt, shard: self.shard, answer }.to_bytes();
        self.queue(self.seen_record(exact.from), read.from, payload);
    }

    /// Notes that a process has failed or left at a timestamp, and forgets its sessions and reads.
    pub fn on_process_ended(&mut self, process: ProcessId, at: Timestamp) {
        self.sessions.end(process);
        self.reads.end(process);
        self.end_peer(process, at);
    }

    /// Returns the next reply. Those that depend on a write that is not written yet wait.
    pub fn poll_reply(&mut self) -> Option<OutgoingReply> {
        let (record, _) = self.replies.front()?;
        let is_stored = !self.options.is_durable || *record <= self.written;
        if !is_stored && !makes(Mistake::ReplyBeforeStore) {
            return None;
        }
        self.replies.pop_front().map(|(_, reply)| reply)
    }

    /// Returns whether there may be a reply to be sent.
    pub fn has_reply(&self) -> bool {
        !self.replies.is_empty()
    }

    /// Returns the timestamp of the last executed write.
    pub fn executed(&self) -> Option<Timestamp> {
        self.executed.map(|(at, _)| at)
    }

    /// Returns the position of the last executed write in the total order.
    pub fn executed_position(&self) -> Option<(Timestamp, ProcessId)> {
        self.executed
    }

    /// Returns the number of reads that wait for the commit barrier.
    pub fn waiting_reads(&self) -> usize {
        self.reads.len()
    }

    /// Returns the state.
    pub fn state(&self) -> &S {
        &self.state
    }

    /// Returns the shard.
    pub fn shard(&self) -> u16 {
        self.shard
    }

    /// Returns the counters.
    pub fn stats(&self) -> ReplicaStats {
        self.stats
    }
}
