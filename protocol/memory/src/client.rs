//! A client of owners: numbers requests, repeats what is lost, and matches replies.

mod invariants;
mod options;
mod pending;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{Mono, ProcessId, ResponseTime, ScatteringId, Timestamp};

use crate::operation::{OPERATION_BYTES_MAX, OPERATIONS_MAX, Operation};
use crate::reply::Reply;
use crate::request::{BatchHeader, Order, Request, encode, execute};
pub use options::{
    ClientOptions, ClientStats, Completed, Executed, MemoryError, OutgoingScattering, RequestId,
    SubmitError,
};
use pending::{Part, Pending, Phase};

/// The timeout doubles with each repetition, this many times at most.
const DOUBLINGS_MAX: u32 = 4;

/// A client of owners. Its driver sends what [`MemoryClient::poll_scattering`] returns, and reports
/// deliveries, losses and the ends of processes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MemoryClient {
    session: u64,
    options: ClientOptions,
    pending: BTreeMap<u64, Pending>,
    /// Number of the next request.
    next: u64,
    to_send: VecDeque<u64>,
    to_ask: VecDeque<u64>,
    /// Requests by their last scattering, and by whether that was reliable.
    scatterings: BTreeMap<(bool, ScatteringId), u64>,
    deadlines: BTreeSet<(Mono, u64)>,
    /// Processes that have ended, and have not replied since: they may have started again.
    ended: BTreeSet<ProcessId>,
    /// Response times of best-effort and of reliable requests.
    response_times: [ResponseTime; 2],
    completed: VecDeque<Completed>,
    stats: ClientStats,
}

impl MemoryClient {
    /// Creates a client. `session` distinguishes the clients that a process has or had, and
    /// ascends: the time of its start in nanoseconds, for example.
    pub fn new(session: u64, options: ClientOptions) -> Self {
        Self {
            session,
            options,
            pending: BTreeMap::new(),
            next: 1,
            to_send: VecDeque::new(),
            to_ask: VecDeque::new(),
            scatterings: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            ended: BTreeSet::new(),
            response_times: Default::default(),
            completed: VecDeque::new(),
            stats: ClientStats::default(),
        }
    }

    /// Submits a request: a batch for each of some owners, which execute them at one timestamp.
    ///
    /// Requests in flight are executed in any order if one of them is repeated after a loss. What
    /// has to come later is submitted after the completion, or stands in the same batch.
    ///
    /// # Errors
    /// If a limit is exceeded, a batch is empty, or two batches are for one owner.
    pub fn submit(
        &mut self,
        batches: &[(ProcessId, &[Operation<'_>])],
    ) -> Result<RequestId, SubmitError> {
        self.submit_any(batches, Order::Total)
    }

    /// Submits a batch that its owner executes as soon as it has arrived, exactly once, in an order
    /// of this owner alone: it waits neither for a commit nor for a barrier.
    ///
    /// A region to which all requests come so is linearizable, and so are several such regions
    /// together. Beside requests in the total order, the batch finds what some prefix of that order
    /// has written, up to the timestamp [`Executed::at`], which is the origin if the prefix is
    /// empty; what others have already read elsewhere may be missing. There a batch that reads
    /// serves to prepare a change that begins with a compare-and-swap, and a batch that writes
    /// would make copies of the region differ.
    ///
    /// # Errors
    /// As [`MemoryClient::submit`].
    pub fn submit_in_owner_order(
        &mut self,
        owner: ProcessId,
        operations: &[Operation<'_>],
    ) -> Result<RequestId, SubmitError> {
        self.submit_any(&[(owner, operations)], Order::Owner)
    }

    fn submit_any(
        &mut self,
        batches: &[(ProcessId, &[Operation<'_>])],
        order: Order,
    ) -> Result<RequestId, SubmitError> {
        if self.next - self.oldest() >= self.options.pending_max {
            return Err(SubmitError::Full(self.options.pending_max));
        }
        if batches.is_empty() {
            return Err(SubmitError::Empty);
        }
        let mut parts: Vec<Part> = Vec::with_capacity(batches.len());
        for (owner, operations) in batches {
            if operations.is_empty() {
                return Err(SubmitError::Empty);
            }
            if operations.len() > OPERATIONS_MAX {
                return Err(SubmitError::TooManyOperations(operations.len()));
            }
            if parts.iter().any(|part| part.owner == *owner) {
                return Err(SubmitError::TwoBatches(*owner));
            }
            let is_too_long = |operation: &Operation<'_>| operation.range().1 > OPERATION_BYTES_MAX;
            if operations.iter().any(is_too_long) {
                return Err(SubmitError::TooLong);
            }
            let count = operations.len();
            parts.push(Part { owner: *owner, count, operations: encode(operations), answer: None });
        }
        let writes = batches.iter().any(|(_, batch)| batch.iter().any(Operation::writes));
        let number = self.next;
        self.next += 1;
        // Several reads have one timestamp in the order of all requests by a reliable scattering
        // alone: by best effort, each owner executes its batch after what it has executed before.
        let is_reliable = order == Order::Total && (writes || batches.len() > 1);
        let pending = Pending::new(parts, is_reliable, order);
        self.pending.insert(number, pending);
        self.to_send.push_back(number);
        Ok(RequestId(number))
    }

    /// Returns the number of requests in flight.
    pub fn in_flight(&self) -> usize {
        self.pending.len()
    }

    /// Returns what the client has done.
    pub fn stats(&self) -> ClientStats {
        self.stats
    }

    /// Returns the next completed request.
    pub fn poll_completed(&mut self) -> Option<Completed> {
        self.completed.pop_front()
    }

    /// Returns the number of the oldest request in flight.
    fn oldest(&self) -> u64 {
        self.pending.first_key_value().map_or(self.next, |(number, _)| *number)
    }

    /// Returns the next scattering to be sent. Its driver calls [`MemoryClient::on_submitted`], or
    /// [`MemoryClient::on_refused`] if the fabric does not accept it now, or
    /// [`MemoryClient::on_unsendable`] if it never will.
    pub fn poll_scattering(&mut self, now: Mono) -> Option<OutgoingScattering> {
        while let Some(number) = self.to_send.pop_front() {
            if let Some(scattering) = self.compose(now, number) {
                return Some(scattering);
            }
        }
        while let Some(number) = self.to_ask.pop_front() {
            let Some(pending) = self.pending.get(&number) else { continue };
            let payload = Request::Ask { session: self.session, number }.to_bytes();
            let messages: Vec<_> =
                pending.unanswered().map(|part| (part.owner, payload.clone())).collect();
            debug_assert!(!messages.is_empty(), "a request with all answers has completed");
            self.stats.asked += 1;
            let request = RequestId(number);
            return Some(OutgoingScattering {
                is_reliable: false,
                is_unordered: false,
                messages,
                request,
                is_question: true,
            });
        }
        None
    }

    fn compose(&mut self, now: Mono, number: u64) -> Option<OutgoingScattering> {
        let (session, finished) = (self.session, self.oldest());
        let pending = self.pending.get_mut(&number)?;
        debug_assert!(pending.phase == Phase::Queued, "a request is queued once");
        (pending.phase, pending.sent_at) = (Phase::Sent, Some(now));
        pending.first_sent_at.get_or_insert(now);
        let order = pending.order;
        let message = |part: &Part| {
            (
                part.owner,
                execute(BatchHeader { session, number, finished }, order, &part.operations),
            )
        };
        let messages: Vec<_> = pending.unanswered().map(message).collect();
        debug_assert!(!messages.is_empty(), "a request with all answers has completed");
        let (is_reliable, is_unordered) = (pending.is_reliable, order == Order::Owner);
        self.arm(now, number);
        let request = RequestId(number);
        Some(OutgoingScattering {
            is_reliable,
            is_unordered,
            messages,
            request,
            is_question: false,
        })
    }

    /// Notes that the fabric has accepted a scattering.
    pub fn on_submitted(&mut self, scattering: &OutgoingScattering, id: ScatteringId) {
        let number = scattering.request.0;
        if !scattering.is_question
            && let Some(pending) = self.pending.get_mut(&number)
        {
            let key = (scattering.is_reliable, id);
            if let Some(previous) = pending.scattering.replace(key) {
                self.scatterings.remove(&previous);
            }
            self.scatterings.insert(key, number);
        }
    }

    /// Notes that the fabric does not accept a scattering now, because its buffer is full. It is
    /// the next one again.
    pub fn on_refused(&mut self, scattering: &OutgoingScattering) {
        let number = scattering.request.0;
        if scattering.is_question {
            return self.to_ask.push_front(number);
        }
        if let Some(pending) = self.pending.get_mut(&number) {
            pending.phase = Phase::Queued;
            self.disarm(number);
            self.to_send.push_front(number);
        }
    }

    /// Notes that the fabric can never send a scattering, as it exceeds a limit or a receiver is
    /// unknown. Its owners that have not replied are given up.
    pub fn on_unsendable(&mut self, scattering: &OutgoingScattering) {
        self.give_up(scattering.request.0, MemoryError::Unsendable);
    }

    /// Handles a message that was delivered to the client's process. Anything but a reply to this
    /// session is dropped.
    pub fn on_message(&mut self, now: Mono, from: ProcessId, payload: &[u8]) {
        let Some(reply) = Reply::parse(payload) else {
            self.stats.malformed += 1;
            return;
        };
        if reply.session != self.session {
            return;
        }
        self.ended.remove(&from);
        let Some(pending) = self.pending.get_mut(&reply.number) else { return };
        let Some(part) = pending.parts.iter_mut().find(|part| part.owner == from) else { return };
        let count = part.count;
        let answer = match reply.result {
            Ok(outcomes) if outcomes.len() != count => {
                self.stats.malformed += 1;
                return;
            }
            Ok(outcomes) => Ok(Executed { at: reply.at, outcomes }),
            Err(refusal) => Err(MemoryError::Refused(refusal)),
        };
        if part.answer.is_some() {
            return;
        }
        if makes(Mistake::OneOwnerOfAll) {
            pending.unanswered_mut().for_each(|part| part.answer = Some(answer.clone()));
        } else {
            part.answer = Some(answer);
        }
        if let Some(sent_at) = pending.sent_at {
            let time = &mut self.response_times[usize::from(pending.is_reliable)];
            match pending.attempts {
                0 => time.on_sample(now.since_ns(sent_at)),
                // A reply to an earlier attempt may have come late: time counts from the first.
                _ => {
                    let first = pending.first_sent_at.unwrap_or(sent_at);
                    time.on_repeated_sample(now.since_ns(first), time.timeout_ns());
                }
            }
        }
        self.complete(reply.number);
    }

    /// Ends a request if all its owners have answered.
    fn complete(&mut self, number: u64) {
        let is_complete =
            self.pending.get(&number).is_some_and(|pending| pending.unanswered().next().is_none());
        if !is_complete {
            return;
        }
        self.disarm(number);
        let Some(pending) = self.pending.remove(&number) else { return };
        if let Some(scattering) = pending.scattering {
            self.scatterings.remove(&scattering);
        }
        if pending.phase == Phase::Queued {
            self.to_send.retain(|queued| *queued != number);
        }
        self.to_ask.retain(|queued| *queued != number);
        let answers = pending.parts.into_iter();
        let answers = answers.filter_map(|part| Some((part.owner, part.answer?))).collect();
        self.completed.push_back(Completed { request: RequestId(number), answers });
    }

    fn give_up(&mut self, number: u64, error: MemoryError) {
        if let Some(pending) = self.pending.get_mut(&number) {
            pending.unanswered_mut().for_each(|part| part.answer = Some(Err(error.clone())));
            self.complete(number);
        }
    }

    /// Notes that a message of a scattering was not delivered, or may not have been. The request is
    /// sent again: owners execute it once.
    pub fn on_send_failed(&mut self, now: Mono, is_reliable: bool, scattering: ScatteringId) {
        let Some(number) = self.scatterings.remove(&(is_reliable, scattering)) else { return };
        let Some(pending) = self.pending.get_mut(&number) else { return };
        pending.scattering = None;
        pending.failures += 1;
        self.stats.failed += 1;
        let is_first = pending.failures == 1;
        if self.give_up_ended(number) {
            return;
        }
        let Some(pending) = self.pending.get_mut(&number) else { return };
        if is_first {
            self.queue(number);
        } else if pending.phase != Phase::Queued {
            // The fabric may report each attempt as failed at once.
            pending.phase = Phase::Failed;
            self.arm(now, number);
        }
        self.check_in_debug_builds();
    }

    fn check_in_debug_builds(&self) {
        if cfg!(debug_assertions) {
            self.check_invariants();
        }
    }

    /// Queues a request to be sent again, unless it is queued already.
    fn queue(&mut self, number: u64) {
        self.disarm(number);
        if let Some(pending) = self.pending.get_mut(&number)
            && pending.phase != Phase::Queued
        {
            pending.phase = Phase::Queued;
            pending.attempts = pending.attempts.saturating_add(1);
            self.to_send.push_back(number);
        }
    }

    /// Notes that a process has failed or left. Requests in flight do not await its replies: it may
    /// have executed them before. Requests that are submitted later are sent once, as the process
    /// may have started again, and are not repeated until it has replied or
    /// [`MemoryClient::on_process_started`] was called.
    pub fn on_process_ended(&mut self, process: ProcessId, _: Timestamp) {
        self.ended.insert(process);
        let numbers: Vec<u64> = self.pending.keys().copied().collect();
        for number in numbers {
            let Some(pending) = self.pending.get_mut(&number) else { continue };
            let mut parts = pending.unanswered_mut();
            if let Some(part) = parts.find(|part| part.owner == process) {
                part.answer = Some(Err(MemoryError::OwnerEnded));
                drop(parts);
                self.complete(number);
            }
        }
        self.check_in_debug_builds();
    }

    /// Notes that a process has started again: its replies are awaited.
    pub fn on_process_started(&mut self, process: ProcessId) {
        self.ended.remove(&process);
    }

    /// Awaits no reply of owners that have ended. Returns whether the request has completed.
    fn give_up_ended(&mut self, number: u64) -> bool {
        let Some(pending) = self.pending.get_mut(&number) else { return true };
        for part in pending.unanswered_mut() {
            if self.ended.contains(&part.owner) {
                part.answer = Some(Err(MemoryError::OwnerEnded));
            }
        }
        self.complete(number);
        !self.pending.contains_key(&number)
    }

    /// Handles that the deadline has passed.
    pub fn handle_timeout(&mut self, now: Mono) {
        while let Some((deadline, number)) = self.deadlines.first().copied()
            && deadline <= now
        {
            self.deadlines.pop_first();
            let Some(pending) = self.pending.get_mut(&number) else { continue };
            pending.deadline = None;
            if self.give_up_ended(number) {
                continue;
            }
            let Some(pending) = self.pending.get_mut(&number) else { continue };
            let first = pending.first_sent_at.unwrap_or(now);
            if now.since_ns(first) >= self.options.give_up_ns {
                self.give_up(number, MemoryError::Unanswered);
            } else if pending.is_reliable
                && pending.phase == Phase::Sent
                && self.options.is_loss_reported
            {
                // The request is delivered, or will be. The reply may be lost.
                pending.attempts = pending.attempts.saturating_add(1);
                self.to_ask.push_back(number);
                self.arm(now, number);
            } else {
                self.queue(number);
            }
        }
        self.check_in_debug_builds();
    }

    /// Returns when [`MemoryClient::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Mono> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    fn disarm(&mut self, number: u64) {
        if let Some(pending) = self.pending.get_mut(&number)
            && let Some(deadline) = pending.deadline.take()
        {
            self.deadlines.remove(&(deadline, number));
        }
    }

    fn arm(&mut self, now: Mono, number: u64) {
        self.disarm(number);
        let Some(pending) = self.pending.get_mut(&number) else { return };
        let timeout_ns = match self.response_times[usize::from(pending.is_reliable)].timeout_ns() {
            0 => self.options.timeout_ns,
            measured_ns => measured_ns.max(self.options.timeout_min_ns),
        };
        let doublings = pending.attempts.max(pending.failures).min(DOUBLINGS_MAX);
        let deadline = now.after_ns(timeout_ns << doublings);
        pending.deadline = Some(deadline);
        self.deadlines.insert((deadline, number));
    }
}
