//! A client of a rival's table.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use onepipe_base::{Mono, ProcessId};
use onepipe_memory::{
    ClientOptions, Completed, Executed, MemoryClient, MemoryError, Operation, Outcome as Found,
    RequestId, is_memory_message,
};

use super::message::{Insertion, Message};
use crate::layout::{Bucket, HEAD, Layout, Location, Node, RESERVED};
use crate::nodes::NodePool;
use crate::outcome::{Finished, OperationId, Outcome, TableError};
use crate::requests::Requests;

/// How a client of a rival runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RivalOptions {
    /// Whether the leader's program inserts. Otherwise the client does, by fenced operations on the
    /// only replica.
    pub asks_leader: bool,
    /// Time after which a message counts as lost, in ns.
    pub timeout_ns: u64,
    /// Number of nodes that the client reserves at a time.
    pub reserved: u32,
}

/// What an operation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Bucket,
    Node {
        head: u64,
    },
    /// Free nodes.
    Reserving {
        head: u64,
    },
    /// The node is written, but not linked.
    Written {
        head: u64,
        node: u64,
    },
    Linked {
        node: u64,
    },
    /// The leader's reply to the request sent at this time.
    Leader {
        sent_at: Mono,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Open {
    key: u64,
    /// The value to be inserted; `None` for a look-up.
    value: Option<Vec<u8>>,
    at: Location,
    step: Step,
}

/// A client of a table whose shards have a leader, over a network without an order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RivalClient<R = MemoryClient> {
    session: u64,
    layout: Layout,
    options: RivalOptions,
    leaders: Vec<ProcessId>,
    memory: R,
    open: BTreeMap<OperationId, Open>,
    /// Operations by their request; those for nodes have a shard.
    requests: BTreeMap<RequestId, Result<OperationId, u16>>,
    pools: Vec<NodePool>,
    next: u64,
    messages: VecDeque<(ProcessId, Vec<u8>)>,
    finished: VecDeque<Finished>,
}

impl RivalClient {
    /// Creates a client. `leaders` has the leader of each shard; `session` is as for
    /// [`MemoryClient::new`].
    pub fn new(
        session: u64,
        layout: Layout,
        leaders: Vec<ProcessId>,
        options: RivalOptions,
    ) -> Self {
        let memory = ClientOptions {
            timeout_ns: options.timeout_ns,
            timeout_min_ns: options.timeout_ns,
            is_loss_reported: false,
            ..ClientOptions::default()
        };
        Self::over(MemoryClient::new(session, memory), session, layout, leaders, options)
    }

    /// Returns the next message to be sent.
    pub fn poll_message(&mut self, now: Mono) -> Option<(ProcessId, Vec<u8>)> {
        while let Some(scattering) = self.memory.poll_scattering(now) {
            self.messages.extend(scattering.messages);
        }
        self.messages.pop_front()
    }

    /// Handles a message.
    pub fn on_message(&mut self, now: Mono, from: ProcessId, payload: &[u8]) {
        if is_memory_message(payload) {
            self.memory.on_message(now, from, payload);
            return self.advance();
        }
        self.on_leader_message(payload);
    }

    /// Sends again what was not answered in time.
    pub fn handle_timeout(&mut self, now: Mono) {
        self.memory.handle_timeout(now);
        self.repeat_to_leaders(now);
        self.advance();
    }

    /// Returns when [`RivalClient::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Mono> {
        let sent_at = self.open.values().filter_map(|open| match open.step {
            Step::Leader { sent_at } => Some(sent_at),
            _ => None,
        });
        let of_leader = sent_at.min().map(|sent_at| sent_at.after_ns(self.options.timeout_ns));
        Mono::earlier(self.memory.poll_timeout(), of_leader)
    }

    /// Handles the requests that have completed.
    fn advance(&mut self) {
        while let Some(completed) = self.memory.poll_completed() {
            self.on_completed(completed);
        }
    }
}

impl<R: Requests> RivalClient<R> {
    /// Creates a client whose requests go through `memory`, and whose completions are passed to
    /// [`RivalClient::on_completed`].
    pub fn over(
        memory: R,
        session: u64,
        layout: Layout,
        leaders: Vec<ProcessId>,
        options: RivalOptions,
    ) -> Self {
        assert_eq!(leaders.len(), usize::from(layout.shards), "each shard has a leader");
        Self {
            session,
            layout,
            options,
            memory,
            open: BTreeMap::new(),
            requests: BTreeMap::new(),
            pools: vec![NodePool::default(); leaders.len()],
            leaders,
            next: 1,
            messages: VecDeque::new(),
            finished: VecDeque::new(),
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

    /// Returns the next message to a leader's program.
    pub fn poll_leader_message(&mut self) -> Option<(ProcessId, Vec<u8>)> {
        self.messages.pop_front()
    }

    /// Looks a key up, and returns the number of the operation.
    pub fn look_up(&mut self, key: u64) -> OperationId {
        let operation = self.begin(key, None);
        self.read_bucket(operation);
        operation
    }

    /// Inserts a key that is not in the table. The value has the length of the table's.
    pub fn insert(&mut self, now: Mono, key: u64, value: &[u8]) -> OperationId {
        let operation = self.begin(key, Some(value.to_vec()));
        if self.options.asks_leader {
            self.ask_leader(now, operation);
        } else {
            self.read_bucket(operation);
        }
        operation
    }

    fn begin(&mut self, key: u64, value: Option<Vec<u8>>) -> OperationId {
        let operation = OperationId(self.next);
        self.next += 1;
        let at = self.layout.location(key);
        self.open.insert(operation, Open { key, value, at, step: Step::Bucket });
        operation
    }

    /// Returns the number of operations in flight.
    pub fn in_flight(&self) -> usize {
        self.open.len()
    }

    /// Returns the next operation that has ended.
    pub fn poll_finished(&mut self) -> Option<Finished> {
        self.finished.pop_front()
    }

    /// Handles a message of a leader's program.
    pub fn on_leader_message(&mut self, payload: &[u8]) {
        if let Some(Message::Inserted { session, number, outcome }) = Message::parse(payload)
            && session == self.session
            && let operation = OperationId(number)
            && let Some(open) = self.open.get(&operation)
        {
            let shard = open.at.shard;
            let outcome = match outcome {
                Insertion::Done => Ok(Outcome::Inserted),
                Insertion::Exists => Ok(Outcome::Exists),
                Insertion::Full => Err(TableError::Full(shard)),
            };
            self.finish(operation, outcome);
        }
    }

    /// Asks leaders again that have not replied in time.
    pub fn repeat_to_leaders(&mut self, now: Mono) {
        let is_due = |open: &Open| match open.step {
            Step::Leader { sent_at } => now.since_ns(sent_at) >= self.options.timeout_ns,
            _ => false,
        };
        let due = self.open.iter().filter(|(_, open)| is_due(open));
        let due: Vec<OperationId> = due.map(|(operation, _)| *operation).collect();
        due.into_iter().for_each(|operation| self.ask_leader(now, operation));
    }

    fn finish(&mut self, operation: OperationId, outcome: Result<Outcome, TableError>) {
        self.open.remove(&operation);
        self.finished.push_back(Finished { operation, outcome });
    }

    fn ask_leader(&mut self, now: Mono, operation: OperationId) {
        let first = self.open.first_key_value().map_or(self.next, |(operation, _)| operation.0);
        let Some(open) = self.open.get_mut(&operation) else { return };
        let Some(value) = open.value.clone() else { return };
        open.step = Step::Leader { sent_at: now };
        let (session, number, shard, key) = (self.session, operation.0, open.at.shard, open.key);
        let insert = Message::Insert { session, number, finished: first, shard, key, value };
        self.messages.push_back((self.leaders[usize::from(shard)], insert.to_bytes()));
    }

    fn submit(&mut self, operation: OperationId, step: Step, batch: &[Operation<'_>]) {
        let Some(open) = self.open.get_mut(&operation) else { return };
        open.step = step;
        let leader = self.leaders[usize::from(open.at.shard)];
        match self.memory.submit_in_owner_order(leader, batch) {
            Ok(request) => {
                self.requests.insert(request, Ok(operation));
            }
            Err(error) => self.finish(operation, Err(error)),
        }
    }

    fn read_bucket(&mut self, operation: OperationId) {
        if let Some(open) = self.open.get(&operation) {
            self.submit(operation, Step::Bucket, &[self.layout.read_bucket(open.at)]);
        }
    }

    /// Handles a request that has completed.
    pub fn on_completed(&mut self, Completed { request, answers }: Completed) {
        let answer = answers.into_iter().next().map(|(_, answer)| answer);
        let Some((of, answer)) = self.requests.remove(&request).zip(answer) else { return };
        match (of, answer) {
            (Ok(operation), Ok(executed)) => self.on_executed(operation, &executed),
            (Err(shard), Ok(executed)) => self.on_reserved(shard, &executed),
            (Ok(operation), Err(error)) => self.on_error(operation, error),
            (Err(shard), Err(_)) => self.fail_waiting(shard, &TableError::Unavailable(shard)),
        }
    }

    fn on_error(&mut self, operation: OperationId, error: MemoryError) {
        let Some(open) = self.open.get(&operation) else { return };
        let shard = open.at.shard;
        let error = match (error, open.step) {
            (MemoryError::Refused(refusal), _) => refusal.into(),
            (_, Step::Linked { .. }) => TableError::InDoubt(shard),
            _ => TableError::Unavailable(shard),
        };
        self.finish(operation, Err(error));
    }

    fn on_executed(&mut self, operation: OperationId, executed: &Executed) {
        let Some(open) = self.open.get(&operation) else { return };
        match (open.step, executed.outcomes.first()) {
            (Step::Bucket, Some(Found::Read(bytes))) => {
                if let Some(bucket) = Bucket::parse(bytes) {
                    self.walk(operation, bucket.head, bucket.head);
                }
            }
            (Step::Node { head }, Some(Found::Read(bytes))) => match Node::parse(bytes) {
                Some(node) if node.key == open.key => {
                    let is_look_up = open.value.is_none();
                    let found =
                        if is_look_up { Outcome::Found(node.value) } else { Outcome::Exists };
                    self.finish(operation, Ok(found));
                }
                Some(node) => self.walk(operation, head, node.next),
                None => {}
            },
            (Step::Written { head, node }, Some(Found::Written)) => {
                let (region, offset) = (self.layout.region(open.at.shard), open.at.bucket + HEAD);
                let link = Operation::CompareAndSwap { region, offset, expected: head, new: node };
                self.submit(operation, Step::Linked { node }, &[link]);
            }
            (Step::Linked { .. }, Some(Found::Compared { is_swapped: true, .. })) => {
                self.finish(operation, Ok(Outcome::Inserted));
            }
            (Step::Linked { node }, Some(Found::Compared { .. })) => {
                self.pools[usize::from(open.at.shard)].put(node);
                self.read_bucket(operation);
            }
            _ => debug_assert!(false, "a reply has the outcomes of its operations"),
        }
    }

    /// Goes on with the node at `next` of a list that begins with `head`.
    fn walk(&mut self, operation: OperationId, head: u64, next: u64) {
        let Some(open) = self.open.get(&operation) else { return };
        if next != 0 {
            let read = self.layout.read_node(open.at.shard, next);
            self.submit(operation, Step::Node { head }, &[read]);
        } else if open.value.is_none() {
            self.finish(operation, Ok(Outcome::Missing));
        } else {
            self.write_node(operation, head);
        }
    }

    fn write_node(&mut self, operation: OperationId, head: u64) {
        let Some(open) = self.open.get_mut(&operation) else { return };
        let Some(value) = open.value.clone() else { return };
        let shard = open.at.shard;
        let Some(node) = self.pools[usize::from(shard)].take() else {
            open.step = Step::Reserving { head };
            return self.reserve(shard);
        };
        let content = Node { next: head, key: open.key, value }.to_bytes();
        let region = self.layout.region(shard);
        let write = Operation::Write { region, offset: node, bytes: &content };
        self.submit(operation, Step::Written { head, node }, &[write]);
    }

    fn reserve(&mut self, shard: u16) {
        let pool = &mut self.pools[usize::from(shard)];
        if core::mem::replace(&mut pool.is_reserving, true) {
            return;
        }
        let (region, addend) = (self.layout.region(shard), self.options.reserved.max(1).into());
        let add: &[_] = &[Operation::FetchAdd { region, offset: RESERVED, addend }];
        match self.memory.submit_in_owner_order(self.leaders[usize::from(shard)], add) {
            Ok(request) => {
                self.requests.insert(request, Err(shard));
            }
            Err(error) => self.fail_waiting(shard, &error),
        }
    }

    /// Returns the operations that wait for nodes of a shard, with the first nodes of their lists.
    fn waiting(&self, shard: u16) -> Vec<(OperationId, u64)> {
        let waiting = self.open.iter().filter_map(|(operation, open)| match open.step {
            Step::Reserving { head } if open.at.shard == shard => Some((*operation, head)),
            _ => None,
        });
        waiting.collect()
    }

    fn fail_waiting(&mut self, shard: u16, error: &TableError) {
        self.pools[usize::from(shard)].is_reserving = false;
        for (operation, _) in self.waiting(shard) {
            self.finish(operation, Err(error.clone()));
        }
    }

    fn on_reserved(&mut self, shard: u16, executed: &Executed) {
        let Some(Found::Added { previous }) = executed.outcomes.first() else { return };
        let pool = &mut self.pools[usize::from(shard)];
        pool.add_reserved(&self.layout, *previous, self.options.reserved.max(1).into());
        if pool.is_empty() {
            return self.fail_waiting(shard, &TableError::Full(shard));
        }
        for (operation, head) in self.waiting(shard) {
            self.write_node(operation, head);
        }
    }
}
