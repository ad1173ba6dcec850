//! A client: sends transactions, collects the replies, and repeats what was lost.

mod options;
mod outcome;
mod questions;
mod response_times;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{Mono, ProcessId, ScatteringId, Timestamp};

use crate::kind::Kind;
use crate::members::Members;
use crate::open_transaction::{OpenTransaction, Progress};
use crate::placement::Placement;
use crate::reply::{Answer, Reply};
use crate::request::{PARTS_MAX, Request, RequestKind};
use crate::sessions::SESSION_WINDOW;

pub use options::ClientOptions;
pub use outcome::{Committed, Finished, SubmitError, TransactionError};
use response_times::ResponseTimes;

/// A transaction that has failed twice is sent at most this often in one timeout, which is
/// [`ClientOptions::timeout_ns`] with its doublings.
const ATTEMPTS_PER_TIMEOUT: u64 = 16;

/// Limit on the doublings of a timeout: one for each failed attempt at a transaction, and one for
/// each time that its replicas were asked for the outcome.
const DOUBLINGS_MAX: u32 = 4;

/// Number of times that a client searches a shard for a replica that was admitted again, if it
/// knows of none that is up. Then the transaction fails.
const SEARCHES_MAX: u32 = 2;

/// Which transaction: its number in the client's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionId(pub u64);

/// A scattering to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutgoingScattering {
    /// Whether the reliable service is to be used.
    pub is_reliable: bool,
    /// Receivers and payloads, one for each receiver.
    pub messages: Vec<(ProcessId, Vec<u8>)>,
    /// The transaction.
    pub transaction: TransactionId,
    /// Whether the scattering asks about the transaction, and is no attempt at it.
    is_question: bool,
}

/// Counters of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClientStats {
    /// Scatterings sent again, as the first attempt was lost.
    pub retried: u64,
    /// Reads repeated, as no timestamp was exact at all shards.
    pub inexact: u64,
    /// Writes sent again, as a replica was admitted that they were not sent to.
    pub outdated: u64,
    /// Times at which replicas were asked for the reply to a write.
    pub asked: u64,
    /// Replies that differ between replicas of one shard. This must not happen.
    pub disagreements: u64,
    /// Messages that are no replies.
    pub malformed: u64,
}

/// A client. Its driver sends what [`Client::poll_scattering`] returns, and reports what became of
/// it; passes replies to [`Client::on_message`]; and takes [`Client::poll_finished`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    session: u64,
    placement: Placement,
    options: ClientOptions,
    next: u64,
    open: BTreeMap<u64, OpenTransaction>,
    /// Transactions to be sent.
    to_send: VecDeque<u64>,
    /// Writes whose replicas are to be asked for the outcome.
    to_ask: VecDeque<u64>,
    /// The transaction of each scattering; reliable and best-effort ones have ids of their own.
    scatterings: BTreeMap<(bool, ScatteringId), u64>,
    deadlines: BTreeSet<(Mono, u64)>,
    finished: VecDeque<Finished>,
    response_times: ResponseTimes,
    /// Snapshot reads see every write below this timestamp, which is above the client's own writes
    /// and not below any commit barrier that its process has had.
    known: Option<Timestamp>,
    stats: ClientStats,
}

impl Client {
    /// Creates a client with a session that no other client of this process ever had.
    pub fn new(session: u64, placement: Placement, options: ClientOptions) -> Self {
        Self {
            session,
            placement,
            options,
            next: 0,
            open: BTreeMap::new(),
            to_send: VecDeque::new(),
            to_ask: VecDeque::new(),
            scatterings: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            finished: VecDeque::new(),
            response_times: ResponseTimes::default(),
            known: None,
            stats: ClientStats::default(),
        }
    }

    /// Submits a transaction with a part for each shard concerned, in ascending order of the
    /// shards.
    ///
    /// # Errors
    /// Too many transactions are unfinished, or the parts are not as above. Nothing is sent.
    pub fn submit(
        &mut self,
        kind: Kind,
        parts: Vec<(u16, Vec<u8>)>,
    ) -> Result<TransactionId, SubmitError> {
        if self.open.len() >= self.options.open_max || self.spread() >= SESSION_WINDOW {
            return Err(SubmitError::Full(self.open.len()));
        }
        if parts.is_empty() {
            return Err(SubmitError::Empty);
        }
        if parts.len() > PARTS_MAX {
            return Err(SubmitError::TooManyParts(parts.len()));
        }
        let is_bad = |index: &usize| {
            let shard = parts[*index].0;
            shard >= self.placement.shards() || (*index > 0 && parts[*index - 1].0 >= shard)
        };
        if let Some(index) = (0..parts.len()).find(is_bad) {
            return Err(SubmitError::Shard(index));
        }
        let number = self.next;
        self.next += 1;
        self.open.insert(number, OpenTransaction::new(kind, parts));
        self.to_send.push_back(number);
        Ok(TransactionId(number))
    }

    /// Returns how far the transaction that is submitted next lies behind the oldest unfinished
    /// one.
    fn spread(&self) -> u64 {
        self.next - self.oldest()
    }

    /// Returns the number of the oldest unfinished transaction.
    fn oldest(&self) -> u64 {
        self.open.first_key_value().map_or(self.next, |(number, _)| *number)
    }

    /// Returns the next scattering to be sent. Its driver calls [`Client::on_submitted`], or
    /// [`Client::on_refused`] if the fabric does not accept it now. `barrier` is the commit barrier
    /// of the client's process.
    pub fn poll_scattering(
        &mut self,
        now: Mono,
        barrier: Option<Timestamp>,
    ) -> Option<OutgoingScattering> {
        self.known = self.known.max(barrier);
        while let Some(number) = self.to_send.pop_front() {
            if self.open.contains_key(&number)
                && let Some(scattering) = self.compose(now, number)
            {
                return Some(scattering);
            }
        }
        while let Some(number) = self.to_ask.pop_front() {
            if let Some(scattering) = self.compose_ask(number) {
                return Some(scattering);
            }
        }
        None
    }

    fn compose(&mut self, now: Mono, number: u64) -> Option<OutgoingScattering> {
        let oldest = self.oldest();
        let open = self.open.get_mut(&number)?;
        open.is_queued = false;
        let attempts = self.options.snapshot_attempts_max;
        let interval_ns = self.options.timeout_ns << open.failures.min(DOUBLINGS_MAX);
        // The fabric may report each attempt as failed at once.
        let next_at =
            open.sent_at.map(|sent_at| sent_at.after_ns(interval_ns / ATTEMPTS_PER_TIMEOUT));
        if let Some(next_at) = next_at.filter(|next_at| open.failures > 1 && now < *next_at) {
            open.is_deferred = true;
            open.set_deadline(&mut self.deadlines, number, Some(next_at));
            return None;
        }
        (open.attempt, open.sent_at, open.is_deferred) = (open.attempt + 1, Some(now), false);
        let kind = open.request_kind(attempts, self.known);
        let is_reliable = kind == RequestKind::Write;
        open.after = match kind {
            RequestKind::SnapshotRead(after) => Some(after),
            _ => None,
        };
        if let Err(shard) = open.begin(&self.placement, number) {
            open.searches += 1;
            if open.searches > SEARCHES_MAX {
                self.finish(number, Err(TransactionError::Unavailable(shard)));
                return None;
            }
            open.view = self.placement.members().view();
            open.is_deferred = true;
            open.set_deadline(&mut self.deadlines, number, Some(now.after_ns(interval_ns)));
            return Some(self.compose_search(number, shard));
        }
        open.searches = 0;
        let (session, attempt) = (self.session, open.attempt);
        open.view = if is_reliable { self.placement.members().view() } else { None };
        let view = open.view;
        let parts = open.parts.iter().map(|(shard, part)| (*shard, part.as_slice())).collect();
        let request = Request { kind, session, number, attempt, finished: oldest, view, parts };
        let is_durable = self.options.is_durable || self.placement.members().is_durable();
        let messages = open.messages(&request, is_durable);
        // The timeout follows the response times: with a fixed one below the latency, every reply
        // would come after the next attempt, and be ignored.
        let timeout_ns = self.response_times.timeout_ns(open, &self.options);
        open.set_deadline(&mut self.deadlines, number, Some(now.after_ns(timeout_ns)));
        let transaction = TransactionId(number);
        Some(OutgoingScattering { is_reliable, messages, transaction, is_question: false })
    }

    /// Notes that the fabric has accepted a scattering.
    pub fn on_submitted(&mut self, scattering: &OutgoingScattering, id: ScatteringId) {
        let number = scattering.transaction.0;
        if let Some(open) = self.open.get_mut(&number)
            && !scattering.is_question
        {
            let key = (scattering.is_reliable, id);
            if let Some(previous) = open.scattering.replace(key) {
                self.scatterings.remove(&previous);
            }
            self.scatterings.insert(key, number);
        }
    }

    /// Notes that the fabric does not accept a scattering now, because its buffer is full. It is
    /// the next one again.
    pub fn on_refused(&mut self, scattering: &OutgoingScattering) {
        let number = scattering.transaction.0;
        let Some(open) = self.open.get_mut(&number) else { return };
        if !scattering.is_question {
            (open.attempt, open.is_queued) = (open.attempt - 1, true);
            open.set_deadline(&mut self.deadlines, number, None);
            self.to_send.push_front(number);
        } else {
            self.to_ask.push_front(number);
        }
    }

    /// Notes that the fabric can never send a scattering, as it exceeds a limit. All attempts at a
    /// transaction have the same messages, so none was sent before, unless a replica was admitted
    /// meanwhile: then there is a message more.
    pub fn on_too_large(&mut self, scattering: &OutgoingScattering) {
        let number = scattering.transaction.0;
        if self.open.contains_key(&number) {
            self.finish(number, Err(TransactionError::TooLarge));
        }
    }

    /// Handles a message that was delivered to the client's process.
    pub fn on_message(&mut self, now: Mono, from: ProcessId, payload: &[u8]) {
        let Some(reply) = Reply::parse(payload) else {
            self.stats.malformed += 1;
            return;
        };
        if reply.session != self.session {
            // The reply is for an earlier incarnation of this process.
            return;
        }
        match reply.answer {
            Answer::Outdated(members) => return self.on_outdated(&reply, members),
            Answer::Absent(at) => return self.on_process_ended(from, at),
            Answer::Stranded => return self.on_stranded(from, &reply),
            Answer::Written { .. } | Answer::Read { .. } | Answer::Refused => {}
        }
        let Some(open) = self.open.get_mut(&reply.number) else { return };
        match open.on_reply(from, &reply) {
            Ok(agrees) => {
                let progress = open.progress(self.options.acks_min);
                if matches!(progress, Progress::Complete(_) | Progress::Inexact) {
                    self.response_times.on_response(now, open, &self.options);
                }
                self.stats.disagreements += u64::from(!agrees);
                self.on_progress(reply.number, progress);
            }
            Err(shard) => self.finish(reply.number, Err(TransactionError::Refused(shard))),
        }
    }

    /// Sends a write again, to the replicas as of a later view.
    fn on_outdated(&mut self, reply: &Reply<'_>, members: &[u8]) {
        let Some(members) = Members::from_bytes(members) else {
            self.stats.malformed += 1;
            return;
        };
        let run = self.placement.members().run();
        self.placement.merge(&members);
        if self.placement.members().run() > run {
            self.end_writes_of_previous_run();
        }
        let view = self.placement.members().view();
        let Some(open) = self.open.get_mut(&reply.number) else { return };
        if open.attempt == reply.attempt && (open.kind == Kind::Write || open.searches > 0) {
            open.is_deferred = false;
            // Without a later view the store has not been opened: the next attempt waits.
            open.failures += u32::from(view == open.view);
            open.set_deadline(&mut self.deadlines, reply.number, None);
            self.stats.outdated += 1;
            self.queue(reply.number);
        }
    }

    /// Ends the writes that may have been executed before all replicas started again: these do not
    /// know of it any more.
    fn end_writes_of_previous_run(&mut self) {
        // Without a view, a write was refused.
        let is_in_doubt = |open: &OpenTransaction| open.kind == Kind::Write && open.view.is_some();
        let in_doubt = self.open.iter().filter(|(_, open)| is_in_doubt(open));
        let in_doubt: Vec<u64> = in_doubt.map(|(number, _)| *number).collect();
        for number in in_doubt {
            self.finish(number, Err(TransactionError::Restarted));
        }
    }

    /// Handles that a replica cannot catch up. Ends the transaction if no replica of the shard can
    /// execute it; otherwise a read is sent to another one.
    fn on_stranded(&mut self, from: ProcessId, reply: &Reply<'_>) {
        let Some(open) = self.open.get_mut(&reply.number) else { return };
        let is_current = open.kind == Kind::Write || open.attempt == reply.attempt;
        if !is_current || !open.is_awaited(from) {
            return;
        }
        open.stranded.insert(from);
        if self.placement.up(reply.shard).all(|replica| open.stranded.contains(&replica)) {
            self.finish(reply.number, Err(TransactionError::Unavailable(reply.shard)));
        } else if open.kind != Kind::Write {
            open.failures += 1;
            open.set_deadline(&mut self.deadlines, reply.number, None);
            self.stats.retried += 1;
            self.queue(reply.number);
        }
    }

    fn on_progress(&mut self, number: u64, progress: Progress) {
        match progress {
            Progress::Waits => {}
            Progress::Complete(at) => {
                let Some(open) = self.open.get_mut(&number) else { return };
                let (results, attempts) = (open.take_results(), open.attempt);
                if !makes(Mistake::OwnWriteMissed) {
                    self.known = self.known.max(Some(at.wrapping_add_ns(1)));
                }
                self.finish(number, Ok(Committed { at, results, attempts }));
            }
            Progress::Inexact => {
                self.stats.inexact += 1;
                self.queue(number);
            }
            Progress::AllEnded => self.queue(number),
        }
    }

    fn finish(&mut self, number: u64, outcome: Result<Committed, TransactionError>) {
        if let Some(mut open) = self.open.remove(&number) {
            open.set_deadline(&mut self.deadlines, number, None);
            if let Some(scattering) = open.scattering {
                self.scatterings.remove(&scattering);
            }
        }
        self.finished.push_back(Finished { transaction: TransactionId(number), outcome });
    }

    /// Notes that a message of a scattering was not delivered, or may not have been. The
    /// transaction is sent again: replicas execute a write once.
    pub fn on_send_failed(&mut self, is_reliable: bool, scattering: ScatteringId) {
        let Some(number) = self.scatterings.remove(&(is_reliable, scattering)) else { return };
        if let Some(open) = self.open.get_mut(&number) {
            open.scattering = None;
            open.failures += 1;
            open.set_deadline(&mut self.deadlines, number, None);
            self.stats.retried += 1;
            self.queue(number);
        }
    }

    /// Queues a transaction to be sent again, unless it is queued already.
    fn queue(&mut self, number: u64) {
        if let Some(open) = self.open.get_mut(&number)
            && !core::mem::replace(&mut open.is_queued, true)
        {
            self.to_send.push_back(number);
        }
    }

    /// Notes that a process has failed or left at a timestamp. The client stops awaiting its
    /// replies.
    pub fn on_process_ended(&mut self, process: ProcessId, at: Timestamp) {
        if !self.placement.on_ended(process, at) {
            return;
        }
        let acks_min = self.options.acks_min;
        let numbers: Vec<u64> = self.open.keys().copied().collect();
        for number in numbers {
            let Some(open) = self.open.get_mut(&number) else { continue };
            if !open.on_process_ended(process) {
                continue;
            }
            let progress = open.progress(acks_min);
            self.on_progress(number, progress);
        }
    }

    /// Handles deadlines that have passed.
    pub fn handle_timeout(&mut self, now: Mono) {
        while let Some((due, number)) =
            self.deadlines.first().copied().filter(|(due, _)| *due <= now)
        {
            self.deadlines.remove(&(due, number));
            let Some(open) = self.open.get_mut(&number) else { continue };
            open.deadline = None;
            if core::mem::take(&mut open.is_deferred) {
                self.queue(number);
                continue;
            }
            match open.kind {
                Kind::Write => {
                    open.asked += 1;
                    let timeout_ns = self.response_times.timeout_ns(open, &self.options);
                    open.set_deadline(&mut self.deadlines, number, Some(now.after_ns(timeout_ns)));
                    self.to_ask.push_back(number);
                }
                Kind::Read(_) => {
                    open.failures += 1;
                    self.stats.retried += 1;
                    self.queue(number);
                }
            }
        }
    }

    /// Returns when [`Client::handle_timeout`] is to be called.
    pub fn poll_timeout(&self) -> Option<Mono> {
        self.deadlines.first().map(|(due, _)| *due)
    }

    /// Returns the next finished transaction.
    pub fn poll_finished(&mut self) -> Option<Finished> {
        self.finished.pop_front()
    }

    /// Returns the number of unfinished transactions.
    pub fn unfinished(&self) -> usize {
        self.open.len()
    }

    /// Returns the placement, as far as the client knows.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Returns the counters.
    pub fn stats(&self) -> ClientStats {
        self.stats
    }
}
