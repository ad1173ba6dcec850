//! A client: the coordinator of its transactions.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use onepipe_base::{Mono, ProcessId};
use onepipe_transaction::{Placement, SESSION_WINDOW, SubmitError, TransactionId};

use crate::message::{OutgoingMessage, Reply};
use crate::open_transaction::{OpenTransaction, Part, Progress};
use crate::protocol::Protocol;
use crate::timer::Timeouts;

/// How a client runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientOptions {
    /// Lower limit on the time after which a request without a reply is sent again, in ns. The time
    /// follows the response times of the server, and doubles with each repetition, up to the
    /// 64-fold. Default 200 us, as that of an endpoint's probes.
    pub timeout_min_ns: u64,
    /// Longest time before the second attempt at a transaction with a conflict, in ns; a hash
    /// chooses the time between half of it and all of it. Default 10 us, about a round trip.
    pub backoff_ns: u64,
    /// Number of doublings of that time with further attempts. Default 6.
    pub doublings_max: u32,
    /// Limit on unfinished transactions. Default 4,096.
    pub open_max: usize,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self { timeout_min_ns: 200_000, backoff_ns: 10_000, doublings_max: 6, open_max: 4_096 }
    }
}

/// A transaction that took place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The transaction.
    pub transaction: TransactionId,
    /// The results of each shard, in ascending order of the shards.
    pub results: Vec<(u16, Vec<u8>)>,
    /// Number of attempts, at least 1: all but the last have aborted.
    pub attempts: u32,
}

/// Counters of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClientStats {
    /// Attempts with conflicts.
    pub aborted: u64,
    /// Requests sent again, as the reply was late.
    pub repeated: u64,
    /// Messages that are no replies.
    pub malformed: u64,
}

/// A client. Its driver sends what [`Client::poll_message`] returns, passes replies to
/// [`Client::on_message`], calls [`Client::handle_timeout`] at [`Client::poll_timeout`], and takes
/// [`Client::poll_finished`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    process: ProcessId,
    session: u64,
    placement: Placement,
    protocol: Protocol,
    options: ClientOptions,
    next: u64,
    open: BTreeMap<u64, OpenTransaction>,
    deadlines: BTreeSet<(Mono, u64)>,
    timeouts: Timeouts,
    outbox: VecDeque<OutgoingMessage>,
    finished: VecDeque<Finished>,
    stats: ClientStats,
}

impl Client {
    /// Creates a client of `process` with a session that no other client of this process ever had.
    pub fn new(
        (process, session): (ProcessId, u64),
        placement: Placement,
        protocol: Protocol,
        options: ClientOptions,
    ) -> Self {
        Self {
            process,
            session,
            placement,
            protocol,
            options,
            next: 0,
            open: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            timeouts: Timeouts::new(options.timeout_min_ns),
            outbox: VecDeque::new(),
            finished: VecDeque::new(),
            stats: ClientStats::default(),
        }
    }

    /// Submits a transaction with a part for each shard concerned, in ascending order of the
    /// shards.
    ///
    /// # Errors
    /// Too many transactions are unfinished, or the parts are not as above. Nothing is sent.
    pub fn submit(&mut self, now: Mono, parts: Vec<Part>) -> Result<TransactionId, SubmitError> {
        let spread = self.next - self.oldest();
        if self.open.len() >= self.options.open_max || spread >= SESSION_WINDOW {
            return Err(SubmitError::Full(self.open.len()));
        }
        if parts.is_empty() {
            return Err(SubmitError::Empty);
        }
        let is_bad = |index: &usize| {
            let shard = parts[*index].shard;
            shard >= self.placement.shards() || (*index > 0 && parts[*index - 1].shard >= shard)
        };
        if let Some(index) = (0..parts.len()).find(is_bad) {
            return Err(SubmitError::Shard(index));
        }
        let uses = (parts.iter().any(|part| part.reads), parts.iter().any(|part| part.writes));
        let rounds = self.protocol.rounds(uses, parts.len());
        let number = self.next;
        self.next += 1;
        self.open.insert(number, OpenTransaction::new(parts, rounds, now));
        self.begin_round(now, number);
        Ok(TransactionId(number))
    }

    /// Returns the number of the oldest unfinished transaction.
    fn oldest(&self) -> u64 {
        self.open.first_key_value().map_or(self.next, |(number, _)| *number)
    }

    /// Begins the current round of a transaction, or the next one in which a shard takes part.
    fn begin_round(&mut self, now: Mono, number: u64) {
        let Some(open) = self.open.get_mut(&number) else { return };
        while !open.begin(&self.placement, number) {
            if !open.next_round() {
                return self.finish(number);
            }
        }
        open.repeated = 0;
        self.send(now, number);
    }

    /// Sends the requests of the current round whose replies are missing.
    fn send(&mut self, now: Mono, number: u64) {
        let oldest = self.oldest();
        let Some(open) = self.open.get_mut(&number) else { return };
        let requests = open.requests((self.session, number, oldest));
        let messages = requests.into_iter().map(|(to, payload)| OutgoingMessage { to, payload });
        self.outbox.extend(messages);
        open.sent_at = now;
        let repeated = open.repeated;
        let deadline = |server| self.timeouts.deadline(now, server, repeated);
        let deadline = open.awaited().map(deadline).max();
        self.set_deadline(number, deadline);
    }

    fn set_deadline(&mut self, number: u64, deadline: Option<Mono>) {
        let Some(open) = self.open.get_mut(&number) else { return };
        if let Some(previous) = core::mem::replace(&mut open.deadline, deadline) {
            self.deadlines.remove(&(previous, number));
        }
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, number));
        }
    }

    /// Handles a message that is a reply.
    pub fn on_message(&mut self, now: Mono, from: ProcessId, payload: &[u8]) {
        let Some(reply) = Reply::parse(payload) else {
            self.stats.malformed += 1;
            return;
        };
        let number = reply.number;
        let Some(open) = self.open.get_mut(&number).filter(|_| reply.session == self.session)
        else {
            return;
        };
        let (sent_at, is_first) = (open.sent_at, open.repeated == 0);
        let Some(progress) = open.on_reply(from, reply) else { return };
        if is_first {
            self.timeouts.on_response(now, from, sent_at);
        }
        match progress {
            Progress::Waits => {}
            Progress::NextRound if open.next_round() => self.begin_round(now, number),
            Progress::NextRound => self.finish(number),
            Progress::Aborts => {
                self.stats.aborted += 1;
                if open.abort(&self.placement) {
                    open.repeated = 0;
                    self.send(now, number);
                } else {
                    self.defer(now, number);
                }
            }
            Progress::Aborted => self.defer(now, number),
        }
    }

    /// Schedules the next attempt at a transaction.
    fn defer(&mut self, now: Mono, number: u64) {
        let Some(open) = self.open.get_mut(&number) else { return };
        open.is_deferred = true;
        let doublings = (open.attempt - 1).min(self.options.doublings_max);
        let longest_ns = self.options.backoff_ns << doublings;
        let words = [self.process.0.into(), self.session, number, open.attempt.into()];
        let wait_ns = longest_ns - hash(words) % (longest_ns / 2 + 1);
        self.set_deadline(number, Some(now.after_ns(wait_ns)));
    }

    fn finish(&mut self, number: u64) {
        self.set_deadline(number, None);
        let Some(mut open) = self.open.remove(&number) else { return };
        let (results, attempts) = (open.take_results(), open.attempt);
        self.finished.push_back(Finished { transaction: TransactionId(number), results, attempts });
    }

    /// Handles deadlines that have passed.
    pub fn handle_timeout(&mut self, now: Mono) {
        while let Some((_, number)) = self.deadlines.first().filter(|(due, _)| *due <= now) {
            let number = *number;
            self.set_deadline(number, None);
            let Some(open) = self.open.get_mut(&number) else { continue };
            if open.is_deferred {
                open.restart();
                self.begin_round(now, number);
            } else {
                open.repeated += 1;
                self.stats.repeated += open.awaited().count() as u64;
                self.send(now, number);
            }
        }
    }

    /// Returns when [`Client::handle_timeout`] is to be called.
    pub fn poll_timeout(&self) -> Option<Mono> {
        self.deadlines.first().map(|(due, _)| *due)
    }

    /// Returns the next message to be sent.
    pub fn poll_message(&mut self) -> Option<OutgoingMessage> {
        self.outbox.pop_front()
    }

    /// Returns the next finished transaction.
    pub fn poll_finished(&mut self) -> Option<Finished> {
        self.finished.pop_front()
    }

    /// Returns the number of unfinished transactions.
    pub fn unfinished(&self) -> usize {
        self.open.len()
    }

    /// Returns the counters.
    pub fn stats(&self) -> ClientStats {
        self.stats
    }
}

/// Returns a number that differs between clients, transactions and attempts (SplitMix64).
fn hash(words: [u64; 4]) -> u64 {
    words.into_iter().fold(0, |state: u64, word| {
        let mut mixed = (state ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    })
}
