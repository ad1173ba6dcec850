//! A client of a table: walks lists by reads, and changes them by conditional batches.

mod open;
mod walk;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use onepipe_base::{Mono, ProcessId, ScatteringId, Timestamp};
use onepipe_memory::{
    ClientStats, Completed, Executed, MemoryClient, MemoryError, Operation, OutgoingScattering,
    RequestId, SubmitError,
};

use crate::layout::{Layout, RESERVED};
use crate::nodes::NodePool;
use crate::outcome::{Finished, OperationId, Outcome, TableError, TableOptions, TableStats};
use open::{Command, Open, Step};

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Purpose {
    Operation(OperationId),
    /// Reserves nodes of a shard.
    Nodes(u16),
}

/// A client of a table. It is driven as a [`MemoryClient`], whose functions it passes on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TableClient {
    layout: Layout,
    options: TableOptions,
    /// The replicas of each shard that have not ended.
    replicas: Vec<Vec<ProcessId>>,
    memory: MemoryClient,
    open: BTreeMap<OperationId, Open>,
    requests: BTreeMap<RequestId, Purpose>,
    pools: Vec<NodePool>,
    next: u64,
    /// Number of walks so far: they are spread over the replicas.
    walks: usize,
    finished: VecDeque<Finished>,
    stats: TableStats,
}

impl TableClient {
    /// Creates a client. `replicas` has those of each shard; `session` is as for
    /// [`MemoryClient::new`].
    pub fn new(
        session: u64,
        layout: Layout,
        replicas: Vec<Vec<ProcessId>>,
        options: TableOptions,
    ) -> Self {
        assert_eq!(replicas.len(), usize::from(layout.shards), "each shard has replicas");
        Self {
            layout,
            options,
            memory: MemoryClient::new(session, options.memory),
            open: BTreeMap::new(),
            requests: BTreeMap::new(),
            pools: vec![NodePool::default(); replicas.len()],
            replicas,
            next: 1,
            // Clients begin at different replicas.
            walks: session as usize,
            finished: VecDeque::new(),
            stats: TableStats::default(),
        }
    }

    /// Looks a key up, and returns the number of the operation.
    pub fn look_up(&mut self, key: u64) -> OperationId {
        self.begin(key, Command::LookUp)
    }

    /// Inserts a key that is not in the table.
    ///
    /// # Errors
    /// If the value has a wrong length.
    pub fn insert(&mut self, key: u64, value: &[u8]) -> Result<OperationId, TableError> {
        self.verify_len(value)?;
        Ok(self.begin(key, Command::Insert(value.to_vec())))
    }

    /// Replaces the value of a key that is in the table.
    ///
    /// # Errors
    /// If the value has a wrong length.
    pub fn update(&mut self, key: u64, value: &[u8]) -> Result<OperationId, TableError> {
        self.verify_len(value)?;
        Ok(self.begin(key, Command::Update(value.to_vec())))
    }

    /// Removes a key.
    pub fn delete(&mut self, key: u64) -> OperationId {
        self.begin(key, Command::Delete)
    }

    fn verify_len(&self, value: &[u8]) -> Result<(), TableError> {
        let (len, expected) = (value.len(), self.layout.value_len);
        if len == expected as usize { Ok(()) } else { Err(TableError::ValueLen { len, expected }) }
    }

    /// Returns the number of operations in flight.
    pub fn in_flight(&self) -> usize {
        self.open.len()
    }

    /// Returns what the client has done.
    pub fn stats(&self) -> TableStats {
        self.stats
    }

    /// Returns what its requests have done.
    pub fn memory_stats(&self) -> ClientStats {
        self.memory.stats()
    }

    /// Returns the next operation that has ended.
    pub fn poll_finished(&mut self) -> Option<Finished> {
        self.finished.pop_front()
    }

    /// See [`MemoryClient::poll_scattering`].
    pub fn poll_scattering(&mut self, now: Mono) -> Option<OutgoingScattering> {
        self.memory.poll_scattering(now)
    }

    /// See [`MemoryClient::on_submitted`].
    pub fn on_submitted(&mut self, scattering: &OutgoingScattering, id: ScatteringId) {
        self.memory.on_submitted(scattering, id);
    }

    /// See [`MemoryClient::on_refused`].
    pub fn on_refused(&mut self, scattering: &OutgoingScattering) {
        self.memory.on_refused(scattering);
    }

    /// See [`MemoryClient::on_unsendable`].
    pub fn on_unsendable(&mut self, scattering: &OutgoingScattering) {
        self.memory.on_unsendable(scattering);
        self.advance();
    }

    /// See [`MemoryClient::on_message`].
    pub fn on_message(&mut self, now: Mono, from: ProcessId, payload: &[u8]) {
        self.memory.on_message(now, from, payload);
        self.advance();
    }

    /// See [`MemoryClient::on_send_failed`].
    pub fn on_send_failed(&mut self, now: Mono, is_reliable: bool, scattering: ScatteringId) {
        self.memory.on_send_failed(now, is_reliable, scattering);
    }

    /// Notes that a process has ended: a replica among those is not used any more.
    pub fn on_process_ended(&mut self, process: ProcessId, at: Timestamp) {
        for replicas in &mut self.replicas {
            replicas.retain(|replica| *replica != process);
        }
        self.memory.on_process_ended(process, at);
        self.advance();
    }

    /// See [`MemoryClient::handle_timeout`].
    pub fn handle_timeout(&mut self, now: Mono) {
        self.memory.handle_timeout(now);
        self.advance();
    }

    /// See [`MemoryClient::poll_timeout`].
    pub fn poll_timeout(&self) -> Option<Mono> {
        self.memory.poll_timeout()
    }

    fn begin(&mut self, key: u64, command: Command) -> OperationId {
        let operation = OperationId(self.next);
        self.next += 1;
        let at = self.layout.location(key);
        let is_early = command != Command::LookUp;
        let step = Step::Bucket;
        self.open.insert(operation, Open { key, command, at, replica: None, step, is_early });
        self.read_bucket(operation);
        operation
    }

    fn finish(&mut self, operation: OperationId, outcome: Result<Outcome, TableError>) {
        self.open.remove(&operation);
        self.finished.push_back(Finished { operation, outcome });
    }

    /// Handles the requests that have completed.
    fn advance(&mut self) {
        while let Some(completed) = self.memory.poll_completed() {
            match self.requests.remove(&completed.request) {
                Some(Purpose::Operation(operation)) => self.on_completed(operation, completed),
                Some(Purpose::Nodes(shard)) => self.on_reserved(shard, completed),
                None => debug_assert!(false, "each request has a purpose"),
            }
        }
    }

    /// Submits a request for an operation, whose next step has been set.
    fn submit(&mut self, operation: OperationId, receivers: &[ProcessId], batch: &[Operation<'_>]) {
        let batches: Vec<_> = receivers.iter().map(|replica| (*replica, batch)).collect();
        let submitted = self.memory.submit(&batches);
        self.on_request(operation, submitted);
    }

    /// Submits reads of an operation, whose next step has been set, to a replica.
    fn submit_read(
        &mut self,
        operation: OperationId,
        (replica, is_early): (ProcessId, bool),
        batch: &[Operation<'_>],
    ) {
        let submitted = match is_early {
            true => self.memory.submit_early(replica, batch),
            false => self.memory.submit(&[(replica, batch)]),
        };
        self.on_request(operation, submitted);
    }

    fn on_request(&mut self, operation: OperationId, submitted: Result<RequestId, SubmitError>) {
        match submitted {
            Ok(request) => {
                self.requests.insert(request, Purpose::Operation(operation));
            }
            Err(_) => self.finish(operation, Err(TableError::Busy)),
        }
    }

    /// Returns what the replicas of a request have done, which is the same at all of them.
    fn agreed(&mut self, completed: Completed) -> Result<Executed, MemoryError> {
        let mut agreed: Option<Executed> = None;
        let mut error = MemoryError::OwnerEnded;
        for (_, answer) in completed.answers {
            match (answer, &agreed) {
                (Ok(executed), Some(other)) => {
                    self.stats.disagreements += u64::from(executed.outcomes != other.outcomes);
                }
                (Ok(executed), None) => agreed = Some(executed),
                (Err(MemoryError::OwnerEnded), _) => {}
                (Err(other), _) => error = other,
            }
        }
        agreed.ok_or(error)
    }

    /// Reserves nodes of a shard at all its replicas.
    fn reserve(&mut self, shard: u16) {
        let pool = &mut self.pools[usize::from(shard)];
        if core::mem::replace(&mut pool.is_reserving, true) {
            return;
        }
        let addend = u64::from(self.options.reserved.max(1));
        let region = self.layout.region(shard);
        let batch: &[_] = &[Operation::FetchAdd { region, offset: RESERVED, addend }];
        let replicas = &self.replicas[usize::from(shard)];
        let batches: Vec<_> = replicas.iter().map(|replica| (*replica, batch)).collect();
        match self.memory.submit(&batches) {
            Ok(request) => {
                self.requests.insert(request, Purpose::Nodes(shard));
            }
            Err(_) => {
                pool.is_reserving = false;
                self.fail_waiting(shard, &TableError::Busy);
            }
        }
    }

    fn fail_waiting(&mut self, shard: u16, error: &TableError) {
        let waiting = self.open.iter().filter(|(_, open)| open.waits_for_nodes(shard));
        let waiting: Vec<OperationId> = waiting.map(|(operation, _)| *operation).collect();
        waiting.into_iter().for_each(|operation| self.finish(operation, Err(error.clone())));
    }

    fn on_reserved(&mut self, shard: u16, completed: Completed) {
        let agreed = self.agreed(completed);
        let pool = &mut self.pools[usize::from(shard)];
        pool.is_reserving = false;
        let executed = match agreed {
            Ok(executed) => executed,
            Err(MemoryError::Refused(refusal)) => {
                return self.fail_waiting(shard, &refusal.into());
            }
            Err(_) => return self.fail_waiting(shard, &TableError::Unavailable(shard)),
        };
        let Some(first) = open::added(&executed) else { return };
        pool.add_reserved(&self.layout, first, self.options.reserved.max(1).into());
        if pool.is_empty() {
            return self.fail_waiting(shard, &TableError::Full(shard));
        }
        let waiting = self.open.iter().filter(|(_, open)| open.waits_for_nodes(shard));
        let waiting: Vec<OperationId> = waiting.map(|(operation, _)| *operation).collect();
        for operation in waiting {
            // The change compares the version, so that the bucket may be old.
            let bucket = self.open.get(&operation).and_then(Open::bucket);
            if let Some(bucket) = bucket {
                self.on_absent(operation, bucket);
            }
        }
    }
}
