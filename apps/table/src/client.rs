//! A client of a table: walks lists by reads, and changes them by conditional batches.

mod driven;
mod open;
mod walk;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use onepipe_base::ProcessId;
use onepipe_base::mistake::{Mistake, makes};
use onepipe_memory::{Completed, Executed, MemoryClient, MemoryError, Operation, Order, RequestId};

use crate::layout::{Layout, RESERVED};
use crate::nodes::NodePool;
use crate::outcome::{Finished, OperationId, Outcome, TableError, TableStats};
use crate::requests::Requests;
use open::{Command, Open, Step};

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Purpose {
    Operation(OperationId),
    /// Reserves nodes of a shard.
    Nodes(u16),
}

/// The replicas of a shard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Replicas {
    /// Those that have not ended.
    running: Vec<ProcessId>,
    /// The order of all requests to the shard: that of its owner if it has had one replica from the
    /// beginning. Where others have ended, a change may be known that the last one lacks.
    order: Order,
}

/// A client of a table. It is driven as a [`MemoryClient`], whose functions it passes on, or has
/// other [`Requests`] ([`TableClient::over`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TableClient<R = MemoryClient> {
    layout: Layout,
    /// Number of nodes that the client reserves at a time.
    reserved: u32,
    replicas: Vec<Replicas>,
    memory: R,
    open: BTreeMap<OperationId, Open>,
    requests: BTreeMap<RequestId, Purpose>,
    pools: Vec<NodePool>,
    next: u64,
    /// Number of walks so far: they are spread over the replicas.
    walks: usize,
    finished: VecDeque<Finished>,
    stats: TableStats,
}

impl<R: Requests> TableClient<R> {
    /// Creates a client whose requests go through `memory`, and whose completions are passed to
    /// [`TableClient::on_completed`]. `replicas` has those of each shard, the same for all clients;
    /// reads begin at the one with the index `first`. The client reserves `reserved` nodes at a
    /// time.
    pub fn over(
        memory: R,
        first: usize,
        layout: Layout,
        replicas: Vec<Vec<ProcessId>>,
        reserved: u32,
    ) -> Self {
        assert_eq!(replicas.len(), usize::from(layout.shards), "each shard has replicas");
        let replicas = replicas.into_iter().map(|running| {
            let order = if running.len() == 1 { Order::Owner } else { Order::Total };
            Replicas { running, order }
        });
        Self {
            layout,
            reserved: reserved.max(1),
            memory,
            open: BTreeMap::new(),
            requests: BTreeMap::new(),
            pools: vec![NodePool::default(); layout.shards.into()],
            replicas: replicas.collect(),
            next: 1,
            walks: first,
            finished: VecDeque::new(),
            stats: TableStats::default(),
        }
    }

    /// Returns what the requests go through.
    pub fn requests_mut(&mut self) -> &mut R {
        &mut self.memory
    }

    /// Ends the client, and returns what the requests went through.
    pub fn into_requests(self) -> R {
        self.memory
    }

    /// Handles a request that has completed.
    pub fn on_completed(&mut self, completed: Completed) {
        match self.requests.remove(&completed.request) {
            Some(Purpose::Operation(operation)) => self.on_answers(operation, completed),
            Some(Purpose::Nodes(shard)) => self.on_reserved(shard, completed),
            None => debug_assert!(false, "each request has a purpose"),
        }
    }

    fn remove_replica(&mut self, process: ProcessId) {
        for replicas in &mut self.replicas {
            replicas.running.retain(|replica| *replica != process);
        }
    }

    fn replicas(&self, shard: u16) -> &Replicas {
        &self.replicas[usize::from(shard)]
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

    /// Ends an operation that is in flight with [`TableError::TimedOut`]: its time was limited to
    /// `limit_ms`. Answers that arrive later are ignored, and a free node that its change may have
    /// used is lost.
    pub fn time_out(&mut self, operation: OperationId, limit_ms: u64) {
        let Some(open) = self.open.get(&operation) else { return };
        let (shard, may_be_executed) = (open.at.shard, open.step.is_change());
        let replicas = self.replicas(shard).running.clone();
        let error = TableError::TimedOut { shard, replicas, limit_ms, may_be_executed };
        self.finish(operation, Err(error));
    }

    /// Returns the operation that has begun last, if any has. Numbers ascend by one.
    pub fn last_operation(&self) -> Option<OperationId> {
        self.next.checked_sub(1).filter(|last| *last > 0).map(OperationId)
    }

    /// Returns whether an operation is in flight.
    pub fn is_in_flight(&self, operation: OperationId) -> bool {
        self.open.contains_key(&operation)
    }

    /// Returns the number of operations in flight.
    pub fn in_flight(&self) -> usize {
        self.open.len()
    }

    /// Returns what the client has done.
    pub fn stats(&self) -> TableStats {
        self.stats
    }

    /// Returns the next operation that has ended.
    pub fn poll_finished(&mut self) -> Option<Finished> {
        self.finished.pop_front()
    }

    fn begin(&mut self, key: u64, command: Command) -> OperationId {
        let operation = OperationId(self.next);
        self.next += 1;
        let at = self.layout.location(key);
        let is_early = command != Command::LookUp && self.replicas(at.shard).order == Order::Total;
        let step = Step::Bucket;
        self.open.insert(operation, Open { key, command, at, replica: None, step, is_early });
        self.read_bucket(operation);
        operation
    }

    fn finish(&mut self, operation: OperationId, outcome: Result<Outcome, TableError>) {
        self.open.remove(&operation);
        self.finished.push_back(Finished { operation, outcome });
    }

    /// Submits a request for an operation, whose next step has been set.
    fn submit(&mut self, operation: OperationId, receivers: &[ProcessId], batch: &[Operation<'_>]) {
        let Some(open) = self.open.get(&operation) else { return };
        let submitted = self.submit_change(open.at.shard, receivers, batch);
        self.on_request(operation, submitted);
    }

    /// Submits a batch that writes.
    fn submit_change(
        &mut self,
        shard: u16,
        receivers: &[ProcessId],
        batch: &[Operation<'_>],
    ) -> Result<RequestId, TableError> {
        match (self.replicas(shard).order, receivers) {
            (Order::Owner, [owner]) => self.memory.submit_in_owner_order(*owner, batch),
            _ => {
                let batches: Vec<_> = receivers.iter().map(|replica| (*replica, batch)).collect();
                self.memory.submit(&batches)
            }
        }
    }

    /// Submits reads of an operation, whose next step has been set, to a replica.
    fn submit_read(
        &mut self,
        operation: OperationId,
        (replica, is_early): (ProcessId, bool),
        batch: &[Operation<'_>],
    ) {
        let Some(open) = self.open.get(&operation) else { return };
        let is_own = self.replicas(open.at.shard).order == Order::Owner;
        let submitted = match is_early || is_own || makes(Mistake::LookUpInOwnerOrder) {
            true => self.memory.submit_in_owner_order(replica, batch),
            false => self.memory.submit(&[(replica, batch)]),
        };
        self.on_request(operation, submitted);
    }

    fn on_request(&mut self, operation: OperationId, submitted: Result<RequestId, TableError>) {
        match submitted {
            Ok(request) => {
                self.requests.insert(request, Purpose::Operation(operation));
            }
            Err(error) => self.finish(operation, Err(error)),
        }
    }

    /// Returns what the replicas of a request have done, which is the same at all of them.
    fn agreed(&mut self, completed: Completed) -> Result<Executed, MemoryError> {
        let mut agreed: Option<Executed> = None;
        let mut error = MemoryError::OwnerEnded;
        for (replica, answer) in completed.answers {
            match (answer, &agreed) {
                (Ok(executed), Some(other)) => {
                    self.stats.disagreements += u64::from(executed.outcomes != other.outcomes);
                }
                (Ok(executed), None) => agreed = Some(executed),
                (Err(MemoryError::OwnerEnded), _) => self.remove_replica(replica),
                (Err(other), _) => error = other,
            }
        }
        agreed.ok_or(error)
    }

    fn replicas_differ(&self, shard: u16) -> TableError {
        TableError::ReplicasDiffer { shard, replicas: self.replicas(shard).running.clone() }
    }

    /// Reserves nodes of a shard at all its replicas.
    fn reserve(&mut self, shard: u16) {
        let pool = &mut self.pools[usize::from(shard)];
        if core::mem::replace(&mut pool.is_reserving, true) {
            return;
        }
        let addend = self.reserved.into();
        let region = self.layout.region(shard);
        let batch: &[_] = &[Operation::FetchAdd { region, offset: RESERVED, addend }];
        let replicas = self.replicas(shard).running.clone();
        match self.submit_change(shard, &replicas, batch) {
            Ok(request) => {
                self.requests.insert(request, Purpose::Nodes(shard));
            }
            Err(error) => {
                self.pools[usize::from(shard)].is_reserving = false;
                self.fail_waiting(shard, &error);
            }
        }
    }

    fn fail_waiting(&mut self, shard: u16, error: &TableError) {
        let waiting = self.open.iter().filter(|(_, open)| open.waits_for_nodes(shard));
        let waiting: Vec<OperationId> = waiting.map(|(operation, _)| *operation).collect();
        waiting.into_iter().for_each(|operation| self.finish(operation, Err(error.clone())));
    }

    fn on_reserved(&mut self, shard: u16, completed: Completed) {
        let differs = open::differs(&completed);
        let agreed = self.agreed(completed);
        let pool = &mut self.pools[usize::from(shard)];
        pool.is_reserving = false;
        if differs {
            return self.fail_waiting(shard, &self.replicas_differ(shard));
        }
        let executed = match agreed {
            Ok(executed) => executed,
            Err(MemoryError::Refused(refusal)) => {
                return self.fail_waiting(shard, &refusal.into());
            }
            Err(_) => return self.fail_waiting(shard, &TableError::Unavailable(shard)),
        };
        let Some(first) = open::added(&executed) else { return };
        pool.add_reserved(&self.layout, first, self.reserved.into());
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
