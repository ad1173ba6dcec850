//! The owner of regions: executes the batches of others in the order of timestamps.

mod invariants;
mod session;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{ProcessId, Timestamp};

use crate::operation::{Operation, Outcome, RegionId};
use crate::region::Region;
use crate::reply::{Reason, Refusal, Reply};
use crate::request::{BatchHeader, Order, Request};
use session::{ResultLimits, Session, Step};

/// How an owner runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OwnerOptions {
    /// Limit on the length in bytes of the results of a batch. Default 16 MiB.
    pub reply_len_max: u64,
    /// Limit on the remembered results of requests that a client has not reported as completed.
    /// Default 4,096, for each process and order.
    pub results_max: usize,
}

impl Default for OwnerOptions {
    fn default() -> Self {
        Self { reply_len_max: 16 << 20, results_max: 4_096 }
    }
}

/// Limit on the bytes of remembered results of a process, which the last one may exceed. Owners
/// that have received the same requests of a process refuse the same ones.
const RESULTS_BYTES_MAX: u64 = 64 << 20;

/// Limit on batches that wait for the commit barrier. One above the limit is dropped, and its
/// client repeats it.
const WAITING_MAX: usize = 65_536;

/// A region cannot be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// There is a region of this number.
    #[error("region {} is already registered", .0.0)]
    Exists(RegionId),
}

/// What an owner has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OwnerStats {
    /// Batches that were executed.
    pub executed: u64,
    /// Batches that were refused with a reason.
    pub refused: u64,
    /// Batches that were executed before, and repeated by their client.
    pub repeated: u64,
    /// Batches of requests that their client has reported as completed, or of an earlier session.
    pub stale: u64,
    /// Batches that were dropped, as too many waited.
    pub dropped: u64,
    /// Messages that are no requests.
    pub malformed: u64,
}

/// A reply that is to be sent by best effort, without an order: its client waits for nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OutgoingReply {
    /// The client.
    pub to: ProcessId,
    /// The payload.
    pub payload: Vec<u8>,
}

/// A batch that waits for the commit barrier.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Waiting {
    payload: Vec<u8>,
}

/// The owner of regions. Its driver passes each delivered request to [`MemoryOwner::on_message`],
/// each rise of the commit barrier to [`MemoryOwner::on_barrier`], and sends what
/// [`MemoryOwner::poll_reply`] returns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MemoryOwner<B = Vec<u8>> {
    options: OwnerOptions,
    regions: BTreeMap<RegionId, Region<B>>,
    sessions: BTreeMap<ProcessId, Session>,
    /// Batches that only read and wait for the commit barrier, in the total order. The number makes
    /// the keys of two messages of one scattering different.
    waiting: BTreeMap<(Timestamp, ProcessId, u64), Waiting>,
    arrivals: u64,
    /// Timestamp of the last reliable request.
    last: Option<Timestamp>,
    barrier: Option<Timestamp>,
    /// Processes that have ended, with their failure timestamps, until the commit barrier has
    /// passed these.
    ended: BTreeMap<ProcessId, Timestamp>,
    replies: VecDeque<OutgoingReply>,
    stats: OwnerStats,
}

/// Where a request comes from: its timestamp, and its sender.
#[derive(Clone, Copy, Debug)]
struct Origin {
    at: Timestamp,
    from: ProcessId,
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> MemoryOwner<B> {
    /// Creates an owner without regions.
    pub fn new(options: OwnerOptions) -> Self {
        Self {
            options,
            regions: BTreeMap::new(),
            sessions: BTreeMap::new(),
            waiting: BTreeMap::new(),
            arrivals: 0,
            last: None,
            barrier: None,
            ended: BTreeMap::new(),
            replies: VecDeque::new(),
            stats: OwnerStats::default(),
        }
    }

    /// Registers a region.
    ///
    /// # Errors
    /// If there is a region of this number.
    pub fn register(&mut self, id: RegionId, region: Region<B>) -> Result<(), RegisterError> {
        if self.regions.contains_key(&id) {
            return Err(RegisterError::Exists(id));
        }
        self.regions.insert(id, region);
        Ok(())
    }

    /// Removes a region, and returns it. Operations on it are refused from now on.
    pub fn deregister(&mut self, id: RegionId) -> Option<Region<B>> {
        self.regions.remove(&id)
    }

    /// Returns a region.
    pub fn region(&self, id: RegionId) -> Option<&Region<B>> {
        self.regions.get(&id)
    }

    /// Returns a region for the owner's application.
    pub fn region_mut(&mut self, id: RegionId) -> Option<&mut Region<B>> {
        self.regions.get_mut(&id)
    }

    /// Returns what the owner has done.
    pub fn stats(&self) -> OwnerStats {
        self.stats
    }

    /// Returns the newest timestamp of the reads that wait: the commit barrier must rise above it.
    /// Where promises are sent on demand, the driver asks for one.
    pub fn awaited(&self) -> Option<Timestamp> {
        self.waiting.last_key_value().map(|((at, ..), _)| *at)
    }

    /// Returns the next reply to be sent.
    pub fn poll_reply(&mut self) -> Option<OutgoingReply> {
        self.replies.pop_front()
    }

    /// Handles a delivered request. Requests of one service arrive in the order of their
    /// timestamps, except for those that were sent without an order.
    pub fn on_message(
        &mut self,
        is_reliable: bool,
        at: Timestamp,
        from: ProcessId,
        payload: &[u8],
    ) {
        match Request::parse(payload) {
            Some(Request::Execute { session, number, finished, operations, .. }) if is_reliable => {
                // Reads below the timestamp come before, with all that precedes them executed.
                self.execute_waiting(|next| (next.0, next.1) < (at, from));
                debug_assert!(self.last <= Some(at), "reliable requests arrive in order");
                self.last = self.last.max(Some(at));
                let header = BatchHeader { session, number, finished };
                self.execute_once(Origin { at, from }, Order::Total, header, &operations);
            }
            Some(Request::Execute {
                session,
                number,
                finished,
                order: order @ Order::Owner,
                operations,
            }) => {
                if operations.iter().any(Operation::writes) {
                    let header = BatchHeader { session, number, finished };
                    return self.execute_once(Origin { at, from }, order, header, &operations);
                }
                let at = self.prefix();
                let result = self.run(from, &operations);
                self.reply(from, Reply { session, number, at, result });
            }
            Some(Request::Execute { session, number, finished, operations, .. }) => {
                let header = BatchHeader { session, number, finished };
                self.on_best_effort(Origin { at, from }, header, &operations, payload);
            }
            Some(Request::Ask { session, number }) => {
                let known = self.sessions.get(&from).filter(|known| known.session == session);
                if let Some(reply) = known.and_then(|known| known.result(number)) {
                    let payload = reply.to_vec();
                    self.replies.push_back(OutgoingReply { to: from, payload });
                }
            }
            None => self.stats.malformed += 1,
        }
    }

    fn on_best_effort(
        &mut self,
        origin: Origin,
        header: BatchHeader,
        operations: &[Operation<'_>],
        payload: &[u8],
    ) {
        let Origin { at, from } = origin;
        let BatchHeader { session, number, .. } = header;
        if let Some(index) = operations.iter().position(Operation::writes) {
            self.stats.refused += 1;
            let refusal = Refusal { index: index as u16, reason: Reason::NotReliable };
            return self.reply(from, Reply { session, number, at, result: Err(refusal) });
        }
        // The commit barrier is above the last reliable request, as that was delivered.
        let is_passed = self.barrier.max(self.last).is_some_and(|passed| at < passed);
        if is_passed || makes(Mistake::MemoryReadAtDelivery) {
            self.read(origin, header, operations);
        } else if self.waiting.len() >= WAITING_MAX {
            self.stats.dropped += 1;
        } else {
            self.arrivals += 1;
            let waiting = Waiting { payload: payload.to_vec() };
            self.waiting.insert((at, from, self.arrivals), waiting);
        }
    }

    /// Handles that the commit barrier has risen, and that everything below it was delivered.
    pub fn on_barrier(&mut self, barrier: Timestamp) {
        if self.barrier >= Some(barrier) {
            return;
        }
        self.barrier = Some(barrier);
        self.execute_waiting(|next| next.0 < barrier);
        debug_assert!(self.waiting.first_key_value().is_none_or(|(next, _)| next.0 >= barrier));
        self.remove_ended(barrier);
        if cfg!(debug_assertions) {
            self.check_invariants();
        }
    }

    /// Notes that a process has ended at a timestamp. Its results are dropped when the commit
    /// barrier has passed that: until then, messages from before may be delivered.
    pub fn on_process_ended(&mut self, process: ProcessId, at: Timestamp) {
        let known = self.ended.entry(process).or_insert(at);
        *known = at.max(*known);
        if let Some(barrier) = self.barrier {
            self.remove_ended(barrier);
        }
    }

    fn remove_ended(&mut self, barrier: Timestamp) {
        let passed = self.ended.extract_if(.., |_, at| *at < barrier);
        for (process, at) in passed {
            // A later session is that of a process that has started since.
            if self.sessions.get(&process).is_some_and(|session| session.last_at < at) {
                self.sessions.remove(&process);
            }
        }
    }

    /// Executes the batches that wait, from the first on, while `is_due`.
    fn execute_waiting(&mut self, is_due: impl Fn(&(Timestamp, ProcessId, u64)) -> bool) {
        while let Some(next) = self.waiting.first_entry()
            && is_due(next.key())
        {
            let ((at, from, _), waiting) = next.remove_entry();
            if let Some(Request::Execute { session, number, finished, operations, .. }) =
                Request::parse(&waiting.payload)
            {
                let header = BatchHeader { session, number, finished };
                self.read(Origin { at, from }, header, &operations);
            }
        }
    }

    /// Executes a batch that only reads.
    fn read(&mut self, origin: Origin, header: BatchHeader, operations: &[Operation<'_>]) {
        let Origin { at, from } = origin;
        let BatchHeader { session, number, .. } = header;
        debug_assert!(!operations.iter().any(Operation::writes), "it is not reliable");
        let result = self.run(from, operations);
        let at = self.last.map_or(at, |last| last.max(at));
        self.reply(from, Reply { session, number, at, result });
    }

    /// Returns the timestamp of what was executed last in the total order; the origin before.
    fn prefix(&self) -> Timestamp {
        self.last.unwrap_or(Timestamp::from_ns(0))
    }

    /// Executes a request that writes, unless it is a repeated one.
    fn execute_once(
        &mut self,
        origin: Origin,
        order: Order,
        header: BatchHeader,
        operations: &[Operation<'_>],
    ) {
        let Origin { at, from } = origin;
        let BatchHeader { session, number, .. } = header;
        let limits =
            ResultLimits { results_max: self.options.results_max, bytes_max: RESULTS_BYTES_MAX };
        let executed_at = if order == Order::Total { at } else { self.prefix() };
        let known = self.sessions.entry(from).or_insert_with(|| Session::new(session, at));
        let payload = match known.step(at, order, header, limits) {
            Step::Stale => {
                self.stats.stale += 1;
                return;
            }
            Step::Repeated(payload) => {
                self.stats.repeated += 1;
                payload
            }
            Step::Full(reason) => {
                self.stats.refused += 1;
                let result = Err(Refusal { index: 0, reason });
                Reply { session, number, at: executed_at, result }.to_bytes()
            }
            Step::New => {
                let result = self.run(from, operations);
                let payload = Reply { session, number, at: executed_at, result }.to_bytes();
                if let Some(known) = self.sessions.get_mut(&from) {
                    known.remember(order, number, payload.clone());
                }
                payload
            }
        };
        self.replies.push_back(OutgoingReply { to: from, payload });
    }

    fn reply(&mut self, to: ProcessId, reply: Reply) {
        self.replies.push_back(OutgoingReply { to, payload: reply.to_bytes() });
    }

    /// Returns the first operation of a batch that must not be executed.
    fn refusal(&self, from: ProcessId, operations: &[Operation<'_>]) -> Option<Refusal> {
        let (limit, mut len) = (self.options.reply_len_max, 0_u64);
        let reasons = operations.iter().map(|operation| {
            len = len.saturating_add(operation.outcome_len());
            match self.regions.get(&operation.region()) {
                None => Some(Reason::UnknownRegion),
                Some(region) => region.refuses(from, operation),
            }
            .or((len > limit).then_some(Reason::ResultTooLong { limit }))
        });
        let mut reasons = reasons.enumerate();
        reasons.find_map(|(index, reason)| Some(Refusal { index: index as u16, reason: reason? }))
    }

    /// Executes a batch, or none of it.
    fn run(
        &mut self,
        from: ProcessId,
        operations: &[Operation<'_>],
    ) -> Result<Vec<Outcome>, Refusal> {
        let refusal = self.refusal(from, operations);
        let executed = match refusal {
            None => operations,
            Some(refusal) if makes(Mistake::RefusedInPart) => &operations[..refusal.index.into()],
            Some(_) => &[],
        };
        let mut outcomes = Vec::with_capacity(operations.len());
        let mut is_skipping = false;
        for operation in executed {
            let region = self.regions.get_mut(&operation.region()).expect("regions were checked");
            let outcome = match is_skipping && !makes(Mistake::FailedCompareIgnored) {
                true => Outcome::Skipped,
                false => region.execute(operation),
            };
            is_skipping |= matches!(outcome, Outcome::Compared { is_swapped: false, .. });
            outcomes.push(outcome);
        }
        match refusal {
            None => self.stats.executed += 1,
            Some(_) => self.stats.refused += 1,
        }
        refusal.map_or(Ok(outcomes), Err)
    }
}
